#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/fit/series.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// A form that a cost could take, not fitted yet.
struct Candidate {
  CostForm form = CostForm::Table;
  std::vector<std::string> features;  ///< Of all forms but tables.
  bool every_point = false;           ///< Table: a knot for each measured value, none merged.
  std::int64_t step = 0;              ///< FeaturesRatio: rows in a block; 0 = no blocks.
  std::int64_t processors = 0;        ///< Of the device, for waves of tiles.
  bool monotone = false;              ///< Table: larger batches never cost less.
};

/// The forms worth trying for an op, simplest first.
///
/// Args:
///     processors: Of the device that multiplies in waves of tiles, one a processor; 0 = a CPU.
/// Source: reference study of GEMM, elementwise and attention times: tables over tokens win inside
/// the measured range, free coefficients of [1, L, L^2] for attention; waves of tiles times a
/// smooth ratio price GEMMs in gaps and beyond the grid.
[[nodiscard]] std::vector<Candidate> candidates_for(const Op& op, std::int64_t processors = 0);

/// The forms that a fit of monotone costs may take: all without a ratio.
[[nodiscard]] std::vector<Candidate> monotone_only(std::vector<Candidate> candidates);

/// Makes the values of knots ascend: each run that descends becomes its mean (pool adjacent
/// violators), which is the ascending sequence with the least squared relative change.
/// Source: Barlow et al., "Statistical Inference under Order Restrictions" (1972), 1.2.
void make_monotone(std::vector<std::pair<double, double>>* knots);

/// Fits one form to the points: tables by medians, coefficients by relative_nnls(). The entry holds
/// the op's sizes and the measured range; its errors are absent. `points` is not empty.
[[nodiscard]] OpCost fit_form(const Candidate& candidate,
                              const Op& op,
                              std::span<const SeriesPoint> points);

/// Values of the candidate's features for one batch.
[[nodiscard]] std::vector<double> feature_row(const Candidate& candidate,
                                              const Op& op,
                                              const BatchShape& batch);

/// Table knots of (x, y) pairs in any order: the median for each distinct x; neighbours closer than
/// 3 % (more, when that leaves over 40 knots) become their mean; the first and last x stay.
[[nodiscard]] std::vector<std::pair<double, double>> make_knots(
    std::vector<std::pair<double, double>> pairs);

/// Leaves out the knots that the line between those kept gives to a fraction `tolerance` of their
/// value; the first and last stay. Not empty.
[[nodiscard]] std::vector<std::pair<double, double>> prune_knots(
    const std::vector<std::pair<double, double>>& knots, double tolerance);

}  // namespace stepsim

#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/fit/series.h"
#include "costmodel/profile.h"

namespace stepsim {

/// A form that a cost could take, not fitted yet.
struct Candidate {
  CostForm form = CostForm::Table;
  std::vector<std::string> features;  ///< Of Features and Roofline.
};

/// The forms worth trying for an op, simplest first.
///
/// Source: reference study of GEMM, elementwise and attention times: tables over tokens win inside
/// the measured range, free coefficients of [1, L, L^2] for attention.
[[nodiscard]] std::vector<Candidate> candidates_for(const Op& op);

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

}  // namespace stepsim

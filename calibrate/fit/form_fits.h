#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calibrate/fit/series.h"
#include "costmodel/compute/op_cost.h"

namespace stepsim {

/// A form that a cost could take, with all that its fit needs to know beside the points.
struct FormCandidate {
  CostForm form = CostForm::Table;
  std::vector<std::string> features;  ///< Empty for tables.
  bool every_point = false;           ///< Tables: every measured value is a knot; none are merged.
  std::int64_t step = 0;              ///< FeaturesRatio: rows in a block; 0 = no blocks.
  std::int64_t processors = 0;        ///< Multiprocessors, for waves of tiles; 0 = a CPU.
  bool monotone = false;              ///< Tables: larger batches never cost less.
  /// RooflineRatio: numbers of processors, whose ratios are averaged.
  std::vector<std::int64_t> wave_counts = {};
};

/// One measured point with the op it belongs to.
struct OpPoint {
  const Op* op = nullptr;
  SeriesPoint point;
  std::size_t series = 0;  ///< Points of the same size of op have the same number.
};

/// The forms worth trying for an op, simplest first. `processors` are those of a device that
/// multiplies in waves of tiles, one a processor; 0 means a CPU.
///
/// Source: reference study of GEMM, elementwise and attention times. Inside the measured range
/// tables over tokens win; for attention free coefficients of [1, L, L^2] do. Waves of tiles times
/// a smooth ratio price GEMMs in gaps and beyond the grid.
[[nodiscard]] std::vector<FormCandidate> candidates_for(const Op& op, std::int64_t processors = 0);

/// Appends to the forms of fused attention, for points some of which have padding and some not, the
/// same sums with a term for padding: a mask that PyTorch gets as a tensor costs more than
/// causality alone, and a batch without padding has none.
void offer_padding(const Op& op,
                   std::span<const SeriesPoint> points,
                   std::vector<FormCandidate>& candidates);

/// The forms worth trying for sizes never measured, simplest first.
[[nodiscard]] std::vector<FormCandidate> unmeasured_candidates(std::span<const OpPoint> points,
                                                               std::int64_t processors);

/// Keeps the forms that can be monotone, and asks them to be.
[[nodiscard]] std::vector<FormCandidate> monotone_only(std::vector<FormCandidate> candidates);

/// Fits one form to points of one class, pass and dtype, whatever their sizes; the entry is for any
/// size. Its errors are absent. `points` is not empty.
[[nodiscard]] OpCost fit_form(const FormCandidate& candidate, std::span<const OpPoint> points);
/// Fits one form to the points of one op; the entry is for its sizes only.
[[nodiscard]] OpCost fit_form(const FormCandidate& candidate,
                              const Op& op,
                              std::span<const SeriesPoint> points);

/// The values of the candidate's features for one batch.
[[nodiscard]] std::vector<double> feature_row(const FormCandidate& candidate,
                                              const Op& op,
                                              const BatchShape& batch);

}  // namespace stepsim

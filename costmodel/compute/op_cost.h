#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "costmodel/compute/cost_model.h"
#include "costmodel/compute/fit_errors.h"
#include "costmodel/compute/gemm_ratio.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/op_flops.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// How a cost depends on the batch.
enum class CostForm {
  Table,  ///< Knots over the op's own variable (tokens, samples or elements), linear between.
  PerSampleTable,  ///< Samples times knots over the padded length (dense attention parts).
  Features,        ///< Sum of coefficient * feature; features named in the file.
  Roofline,        ///< c0 + c1 * flops + c2 * bytes, for shapes never measured.
  FeaturesRatio,   ///< Sum of features times knots of a ratio, linear between, constant outside.
  RooflineRatio    ///< Roofline times gemm_ratio(): GEMM shapes never measured.
};

[[nodiscard]] std::string_view name_of(CostForm form);  ///< "table", "per_sample_table", …
[[nodiscard]] CostForm parse_cost_form(std::string_view name);  ///< Raises InputError.

/// One fitted cost. Zero in n, k, heads or head_dim means "any" (the class's general form).
struct OpCost {
  OpClass op_class = OpClass::Gemm;
  Pass pass = Pass::Forward;
  Dtype dtype = Dtype::F32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  CostForm form = CostForm::Table;
  std::vector<std::pair<double, double>> knots;  ///< (variable, seconds or ratio), ascending.
  std::vector<std::string> features;             ///< "1", "samples", "tokens", "tokens*length", …
  std::vector<double> coefficients;              ///< Seconds per unit of each feature.
  std::int64_t processors = 0;                   ///< Of the device, for features of waves.
  GemmRatio gemm_ratio;                          ///< Of RooflineRatio.
  double range_lo = 0;  ///< Measured range of the variable (Features: of tokens or elements).
  double range_hi = 0;
  int samples = 0;
  FitErrors errors;

  bool operator==(const OpCost&) const = default;
};

/// The variable a Table is kept over: tokens, samples or elements, by op.rows; for attention
/// classes tokens.
[[nodiscard]] double variable_of(const Op& op, const BatchShape& batch);

/// Value of a named feature: "1"; "samples"; "tokens" (as rows_of); "samples*length", the same as
/// tokens; "tokens*length" and "samples*length^2", both samples * length^2 padded and the sum of
/// squares for varlen; "elements": n, times the rows when the op runs over tokens or samples;
/// "empty_blocks": those of all heads of a varlen op; "flops" and "bytes" as below; those of
/// parse_tile_feature(). Raises InputError for an unknown name, and for waves without processors.
[[nodiscard]] double feature_value(std::string_view feature,
                                   const Op& op,
                                   const BatchShape& batch,
                                   std::int64_t processors = 0);

/// The variable that a ratio's knots are over: for fused attention the mean length weighted by
/// tokens (the padded length, without varlen), else variable_of().
[[nodiscard]] double ratio_variable(const Op& op, const BatchShape& batch);

/// The names that feature_value() knows, without those of parse_tile_feature().
[[nodiscard]] std::span<const std::string> feature_names();

/// The part of a fit's error that all its uses share: the held-out bias, and the scatter of single
/// points over the square root of their number. Without a known bias all of it counts as shared.
[[nodiscard]] double shared_error(const FitErrors& errors, int samples);

/// Seconds of one fitted cost for this op and batch, and how far outside its range that is.
///
/// Table and PerSampleTable: linear between knots, below the first knot the first value, beyond the
/// last one on from there with tail_slope(). Features and Roofline: the sum, not below zero; with a
/// ratio times the ratio, whose knots are constant outside.
/// `extrapolation` is variable / range_hi, at least 1; smaller than measured counts as inside,
/// since the smallest entry is the cost of a launch. `relative_error` is the random hold-out error
/// inside, and outside the larger of that and the beyond-the-grid error, times the extrapolation.
/// Raises InputError: a PerSampleTable for a varlen op, which has no padded length.
[[nodiscard]] Cost evaluate(const OpCost& cost, const Op& op, const BatchShape& batch);

/// True when there are features of waves.
[[nodiscard]] bool needs_processors(std::span<const std::string> features);

/// Linear interpolation over ascending knots; clamped below, last slope beyond.
[[nodiscard]] double interpolate(const std::vector<std::pair<double, double>>& knots, double x);

/// Seconds per unit beyond the last knot: slope of the line a + b x, neither negative, with the
/// least squared relative residuals through the knots with x >= x_last / `window` (at least the
/// last `fewest`). One single knot: proportional to x.
[[nodiscard]] double tail_slope(const std::vector<std::pair<double, double>>& knots,
                                double window = 4,
                                std::size_t fewest = 2);

/// The slope of such a line whose a may be negative; knots of zero seconds have no relative
/// residual and are left out; 0 with fewer than two knots left.
[[nodiscard]] double relative_slope(std::span<const std::pair<double, double>> knots);

}  // namespace stepsim

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "costmodel/batch_shape.h"
#include "costmodel/profile.h"
#include "costmodel/transformer.h"

namespace stepsim {

/// Rows an op runs over: tokens (padded, or the useful ones of a varlen op; Collate always builds
/// the padded batch), samples, or 1 for Elements.
[[nodiscard]] double rows_of(const Op& op, const BatchShape& batch);

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

/// Floating-point operations of an op, by class, pass and shape.
///
/// GEMM 2 m n k (each of forward, input and weight gradient). Attention 4 h d P forward with P the
/// unmasked pairs of positions: the sum over sequences of L^2, of L (L + 1) / 2 when causal, of
/// causal_pairs(L, w) with a causal window, and of 2 causal_pairs(L, w) - L with a window to both
/// sides; sequences are the B padded ones, or the documents for varlen. 2.5 times that backward.
/// Dense attention: 2 h d B L^2 each for scores and context, twice that backward; masks save
/// nothing. Other classes: one operation per element, since their bytes set their time.
/// Source: FlashAttention's benchmark code, whose causal half is rounded to L^2 / 2.
[[nodiscard]] double op_flops(const Op& op, const BatchShape& batch);

/// Bytes an op has to read and write at least once, in elements of its dtype: a GEMM its three
/// matrices, attention its inputs and outputs (dense: the score matrix too), others their tensors.
[[nodiscard]] double op_bytes(const Op& op, const BatchShape& batch);

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

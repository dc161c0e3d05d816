#pragma once

#include <string_view>

#include "costmodel/batch_shape.h"
#include "costmodel/profile.h"
#include "costmodel/transformer.h"

namespace stepsim {

/// The variable a Table is kept over: tokens, samples or elements, by op.rows; for attention
/// classes tokens.
[[nodiscard]] double variable_of(const Op& op, const BatchShape& batch);

/// Value of a named feature: "1", "samples", "tokens", "elements", "tokens*length"
/// (samples * length^2 padded; sum of squares for varlen), "flops", "bytes".
/// Raises InputError for an unknown name.
[[nodiscard]] double feature_value(std::string_view feature, const Op& op, const BatchShape& batch);

/// Floating-point operations and bytes moved, by class, pass and shape.
/// Source: GEMM 2 m n k; attention 4 B L^2 h d forward, backward 2.5x, half of both when causal.
[[nodiscard]] double op_flops(const Op& op, const BatchShape& batch);
[[nodiscard]] double op_bytes(const Op& op, const BatchShape& batch);

/// Seconds of one fitted cost for this op and batch, extrapolation included (Table: beyond the last
/// knot with the slope of the last quarter; below the first knot the first value).
[[nodiscard]] Cost evaluate(const OpCost& cost, const Op& op, const BatchShape& batch);

/// Linear interpolation over ascending knots; clamped below, last slope beyond.
[[nodiscard]] double interpolate(const std::vector<std::pair<double, double>>& knots, double x);

}  // namespace stepsim

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "costmodel/model/batch_shape.h"
#include "costmodel/model/op_flops.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// The number that a table is kept over: the op's tokens, samples or elements, whichever op.rows
/// says. For attention it is the tokens.
[[nodiscard]] double variable_of(const Op& op, const BatchShape& batch);

/// The number that the knots of a ratio are kept over. For fused attention it is the mean length
/// weighted by tokens (the padded length, unless the op is varlen); for all others variable_of().
[[nodiscard]] double ratio_variable(const Op& op, const BatchShape& batch);

/// The value of a named feature of an op and its batch:
///
///     "1"              1
///     "samples"        samples
///     "tokens"         tokens, as rows_of() counts them; "samples*length" means the same
///     "tokens*length"  samples * length^2 padded, the sum of squared lengths for a varlen op;
///                      "samples*length^2" means the same
///     "padded*length^2"  samples * length^2 of a batch that has padding, else 0; 0 for a varlen op
///     "elements"       n, times the rows where the op runs over tokens or samples
///     "empty_blocks"   the blocks without work in the grid of a varlen op, over all heads
///     "flops"          op_flops()
///     "bytes"          op_bytes()
///
/// and those that parse_tile_feature() knows. Raises InputError for an unknown name, and for a
/// feature of waves when `processors` is 0.
[[nodiscard]] double feature_value(std::string_view feature,
                                   const Op& op,
                                   const BatchShape& batch,
                                   std::int64_t processors = 0);

/// The names that feature_value() knows, without those of parse_tile_feature().
[[nodiscard]] std::span<const std::string> feature_names();

/// Whether any of these features counts waves, which takes the device's number of processors.
[[nodiscard]] bool needs_processors(std::span<const std::string> features);

}  // namespace stepsim

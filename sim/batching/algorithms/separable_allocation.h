#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/batching/random/wide_integer.h"

namespace stepsim {

/// Who gives up how much.
struct Split {
  std::vector<std::int64_t> taken;  ///< [rank] d_g.
  bool exact = true;
};

/// Minimises sum_g values[g][d_g] subject to sum_g d_g = total and 0 <= d_g < the values of rank g;
/// among equal sums the lexicographically largest d.
///
/// A Lagrangian bound first fixes every rank whose other choices cannot be part of an optimum; the
/// rest is a dynamic programme over ranks and amount. Where that would take more than 2^22 cells
/// the best allocation found on the way is returned with exact = false.
///
/// Args:
///     all: The values of all ranks, one rank's behind the other's. Integer is std::int64_t or
///     WideInteger;
///         magnitudes summed over ranks stay below 2^61 or 2^125.
///     first: [rank] where its values begin, and the end: one more than there are ranks. A rank has
///         one value at least.
///     total: 0 .. the sum of the largest d.
template <typename Integer>
[[nodiscard]] Split separable_allocation(std::span<const Integer> all,
                                         std::span<const std::size_t> first,
                                         std::int64_t total);

}  // namespace stepsim

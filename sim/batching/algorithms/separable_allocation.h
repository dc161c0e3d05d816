#pragma once

#include <cstdint>
#include <vector>

#include "sim/batching/random/wide_integer.h"

namespace stepsim {

/// Who gives up how much.
struct Split {
  std::vector<std::int64_t> taken;  ///< [rank] d_g.
  bool exact = true;
};

/// Minimises sum_g values[g][d_g] subject to sum_g d_g = total and 0 <= d_g < values[g].size();
/// among equal sums the lexicographically largest d.
///
/// A Lagrangian bound first fixes every rank whose other choices cannot be part of an optimum; the
/// rest is a dynamic programme over ranks and amount. Where that would take more than 2^22 cells
/// the best allocation found on the way is returned with exact = false.
///
/// Args:
///     values: [rank][d], at least one each; magnitudes summed over ranks below 2^125.
///     total: 0 .. the sum of the largest d.
[[nodiscard]] Split separable_allocation(const std::vector<std::vector<WideInteger>>& values,
                                         std::int64_t total);

}  // namespace stepsim

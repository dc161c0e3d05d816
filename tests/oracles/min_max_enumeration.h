#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/batching/algorithms/min_max.h"

namespace stepsim {

/// What a full enumeration of the allocations finds.
struct Enumeration {
  std::int64_t combinations = 0;  ///< Feasible allocations.
  std::int64_t highest_cost = 0;
  /// Allocations of the least highest cost and, among these, the least variance, ascending.
  std::vector<std::vector<std::int64_t>> best;
};

/// Tries every allocation, as the published method does: for few ranks only, and as an oracle.
/// Raises InputError as solve_min_max() does, and where it counts more than 10^9 combinations.
[[nodiscard]] Enumeration enumerate_min_max(std::span<const PrefixCosts> costs,
                                            std::int64_t global_batch);

}  // namespace stepsim

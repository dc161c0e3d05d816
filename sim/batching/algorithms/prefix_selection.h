#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/batching/algorithms/min_max.h"

namespace stepsim {

/// The cheapest prefixes that hold a wanted number of samples beyond each rank's first.
struct PrefixSelection {
  std::int64_t dearest = 0;         ///< Their highest cost; 0 when none is wanted.
  std::vector<std::int64_t> sizes;  ///< [rank] 1 + how many further samples cost at most that.
};

/// The `count`-th smallest of all costs[g][k], k >= 1 (the second sample on), and what is at or
/// below it. Sampled quantiles bracket it, one pass over the ranks narrows each row, the few costs
/// left are selected from.
[[nodiscard]] PrefixSelection select_prefixes(std::span<const PrefixCosts> costs,
                                              std::int64_t count);

}  // namespace stepsim

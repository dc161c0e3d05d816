#pragma once

#include <cstdint>
#include <span>

#include "sim/batching/algorithms/min_max.h"
#include "sim/batching/algorithms/separable_allocation.h"

namespace stepsim {

/// Every rank holds `fitting` samples at a cost of at most `highest`; `slack` are given up in all.
struct SlackProblem {
  std::span<const PrefixCosts> costs;     ///< [rank]
  std::span<const std::int64_t> fitting;  ///< [rank]
  std::int64_t slack = 0;
  std::int64_t highest = 0;
};

/// The least variance of costs over the ranks, then the lexicographically smallest batch sizes.
/// Raises InputError: costs too large to be squared and compared in 128 bits.
[[nodiscard]] Split split_by_variance(const SlackProblem& problem);

/// The least sum of costs, then the lexicographically smallest batch sizes.
[[nodiscard]] Split split_by_sum(const SlackProblem& problem);

}  // namespace stepsim

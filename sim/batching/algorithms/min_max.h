#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/model/batch_shape.h"

namespace stepsim {

/// Costs of a rank's prefixes: costs[k - 1] is what its first k samples cost together. Strictly
/// increasing, each >= 1, in any unit (padded tokens, their square, nanoseconds). Its size is the
/// most samples the rank may take.
using PrefixCosts = std::vector<std::int64_t>;

/// The cost k M for every prefix, where M is the longest of the first k samples.
[[nodiscard]] PrefixCosts padded_token_costs(std::span<const std::int64_t> lengths);

/// The cost (k M)^2 for every prefix. Raises InputError: k M is 2^31 or more.
[[nodiscard]] PrefixCosts squared_token_costs(std::span<const std::int64_t> lengths);

/// `cost` of every prefix's shape, in whole units (nanoseconds of a calibrated step). Where the
/// cost does not grow with one more sample it is taken as one unit more.
[[nodiscard]] PrefixCosts shape_costs(std::span<const std::int64_t> lengths,
                                      const std::function<std::int64_t(const BatchShape&)>& cost);

/// What decides between allocations of the same highest cost.
enum class TieBreak {
  None,      ///< SampleIds are dealt one at a time to the rank whose next prefix is cheapest.
  MinSum,    ///< The smallest sum of costs.
  Variance,  ///< The smallest variance of costs over the ranks.
  Leximax    ///< The smallest second-highest cost, then third-highest, …
};

/// The names of the tie-breaks, in their order: "none", "min_sum", "variance", "leximax".
[[nodiscard]] std::span<const std::string> tie_break_names();

/// Raises InputError: unknown name (nearest named).
[[nodiscard]] TieBreak parse_tie_break(std::string_view name);

/// How a global batch is dealt out, and how much choice there was.
struct Allocation {
  std::vector<std::int64_t> batch_sizes;  ///< [rank], each >= 1.
  std::int64_t highest_cost = 0;          ///< The smallest possible maximum T*.
  std::int64_t slack = 0;       ///< SampleIds that would fit under T* beyond the global batch (E).
  std::int64_t tied_ranks = 0;  ///< Ranks with a prefix of cost T* (m).
  bool head_bound = false;      ///< T* is the cost of one rank's first sample alone.
  bool exact = true;            ///< The tie-break was solved exactly (see solve_min_max).
};

/// Takes a prefix of every rank, `global_batch` samples in all, so that the highest cost is least.
///
/// T* = max(max_g c_g(1), the (B - G)-th smallest of all c_g(k), k >= 2): any allocation uses B - G
/// of these and all first samples, and taking the smallest ones uses prefixes only. O(G log K) on
/// average. Ties go to TieBreak, then to the lexicographically smallest batch sizes (None: to the
/// lower ranks first).
///
/// With S the sum of costs and Q of their squares, the variance is least where G Q - 2 s S is least
/// for s = S (it is concave), which separable_allocation solves; s is found by bisection over the
/// corners of the lower hull of (S, Q). Costs are compared exactly in 128 bits. `exact` is false
/// where a problem was too large for separable_allocation.
///
/// Args:
///     costs: [rank]; at least one rank.
/// Raises:
///     InputError: B < G, B above the sum of the rows' sizes, a row that is empty or does not
///     strictly increase, costs too large for an exact variance.
[[nodiscard]] Allocation solve_min_max(std::span<const PrefixCosts> costs,
                                       std::int64_t global_batch,
                                       TieBreak tie_break);

}  // namespace stepsim

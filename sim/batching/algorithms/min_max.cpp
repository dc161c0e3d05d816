#include "sim/batching/algorithms/min_max.h"

#include <algorithm>
#include <array>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/row_named.h"
#include "sim/batching/algorithms/prefix_selection.h"
#include "sim/batching/algorithms/variance_split.h"

namespace stepsim {
namespace {

void check(std::span<const PrefixCosts> costs, std::int64_t global_batch) {
  std::int64_t available = 0;
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    const PrefixCosts& row = costs[rank];
    if (row.empty()) {
      throw InputError("min-max: rank {} has no sample to take", rank);
    }
    std::int64_t before = 0;
    bool rises = true;
    for (const std::int64_t cost : row) {
      rises = rises && cost > before;
      before = cost;
    }
    if (!rises) {
      throw InputError("min-max: the costs of rank {} do not rise from 1", rank);
    }
    available += static_cast<std::int64_t>(row.size());
  }
  const auto ranks = static_cast<std::int64_t>(costs.size());
  if (ranks == 0 || global_batch < ranks || global_batch > available) {
    throw InputError(
        "min-max: a global batch of {} cannot be dealt to {} ranks, each at least 1 sample and {} "
        "in all at most",
        global_batch,
        ranks,
        available);
  }
}

/// A tied rank gives its last sample back.
void give_back(std::vector<std::int64_t>& batch_sizes,
               std::span<const std::size_t> ranks,
               std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    --batch_sizes[ranks[static_cast<std::size_t>(i)]];
  }
}

/// The B - G cheapest further samples, where `chosen` counts all prefixes up to the dearest of
/// them: the surplus comes from the ranks whose last sample costs exactly that.
void drop_surplus(std::span<const PrefixCosts> costs,
                  const PrefixSelection& selection,
                  std::int64_t global_batch,
                  TieBreak tie_break,
                  std::vector<std::int64_t>& sizes) {
  std::vector<std::size_t> tied;
  std::int64_t surplus = -global_batch;
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    surplus += sizes[rank];
    if (sizes[rank] > 1 &&
        costs[rank][static_cast<std::size_t>(sizes[rank]) - 1] == selection.dearest) {
      tied.push_back(rank);
    }
  }
  if (tie_break == TieBreak::None) {
    std::ranges::reverse(tied);
  } else {
    const auto cost_without = [&](std::size_t rank) {
      return costs[rank][static_cast<std::size_t>(sizes[rank]) - 2];
    };
    std::ranges::stable_sort(
        tied, [&](std::size_t a, std::size_t b) { return cost_without(a) < cost_without(b); });
  }
  give_back(sizes, tied, surplus);
}

/// [rank] samples that fit under `cost`, at least as many as `sizes`.
std::vector<std::int64_t> grow_to(std::span<const PrefixCosts> costs,
                                  std::vector<std::int64_t> sizes,
                                  std::int64_t cost) {
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    const auto begin = costs[rank].begin();
    const auto end = std::upper_bound(begin + sizes[rank], costs[rank].end(), cost);
    sizes[rank] = end - begin;
  }
  return sizes;
}

}  // namespace

std::span<const std::string> tie_break_names() {
  static const std::array<std::string, 4> kNames = {"none", "min_sum", "variance", "leximax"};
  return kNames;
}

TieBreak parse_tie_break(std::string_view name) {
  return enum_named<TieBreak>(tie_break_names(), "tie_break", name);
}

Allocation solve_min_max(std::span<const PrefixCosts> costs,
                         std::int64_t global_batch,
                         TieBreak tie_break) {
  check(costs, global_batch);
  Allocation result;
  const std::int64_t dearest_first = max_of(
      costs, [](const PrefixCosts& row) { return row.front(); }, std::int64_t{0});
  const auto further = global_batch - static_cast<std::int64_t>(costs.size());
  PrefixSelection selection = select_prefixes(costs, further);
  result.highest_cost = std::max(dearest_first, selection.dearest);
  result.head_bound = result.highest_cost == dearest_first;
  std::vector<std::int64_t> fitting = selection.sizes;
  if (result.highest_cost > selection.dearest) {
    fitting = grow_to(costs, std::move(fitting), result.highest_cost);
  }
  result.slack = -global_batch;
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    result.slack += fitting[rank];
    const auto last = costs[rank][static_cast<std::size_t>(fitting[rank]) - 1];
    result.tied_ranks += last == result.highest_cost ? 1 : 0;
  }
  if (result.slack == 0) {
    result.batch_sizes = std::move(fitting);
  } else if (tie_break == TieBreak::None || tie_break == TieBreak::Leximax) {
    result.batch_sizes = selection.sizes;
    drop_surplus(costs, selection, global_batch, tie_break, result.batch_sizes);
  } else {
    const SlackProblem problem = {costs, fitting, result.slack, result.highest_cost};
    Split split =
        tie_break == TieBreak::Variance ? split_by_variance(problem) : split_by_sum(problem);
    result.exact = split.exact;
    for (std::size_t rank = 0; rank < costs.size(); ++rank) {
      fitting[rank] -= split.taken[rank];
    }
    result.batch_sizes = std::move(fitting);
  }
  return result;
}

}  // namespace stepsim

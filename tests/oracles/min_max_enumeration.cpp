#include "tests/oracles/min_max_enumeration.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/random/wide_integer.h"

namespace stepsim {
namespace {

/// Nested loops over the ranks, one level a rank.
class Enumerator {
 public:
  explicit Enumerator(std::span<const PrefixCosts> costs) : costs_(costs) {
    most_after_.assign(costs.size() + 1, 0);
    for (std::size_t rank = costs.size(); rank-- > 0;) {
      most_after_[rank] = most_after_[rank + 1] + static_cast<std::int64_t>(costs[rank].size());
    }
  }

  [[nodiscard]] Enumeration run(std::int64_t global_batch) && {
    descend(global_batch, {});
    return std::move(result_);
  }

 private:
  struct Sums {
    std::int64_t highest = 0;
    WideInteger sum = 0;
    WideInteger squares = 0;
  };

  void descend(std::int64_t left, const Sums& before) {
    const std::size_t rank = sizes_.size();
    if (rank == costs_.size()) {
      compare(before);
      return;
    }
    const auto ranks_after = static_cast<std::int64_t>(costs_.size() - rank) - 1;
    const auto own = static_cast<std::int64_t>(costs_[rank].size());
    const std::int64_t last = std::min(own, left - ranks_after);
    for (auto size = std::max<std::int64_t>(1, left - most_after_[rank + 1]); size <= last;
         ++size) {
      const std::int64_t cost = costs_[rank][static_cast<std::size_t>(size) - 1];
      sizes_.push_back(size);
      descend(left - size,
              {std::max(before.highest, cost),
               before.sum + cost,
               before.squares + static_cast<WideInteger>(cost) * cost});
      sizes_.pop_back();
    }
  }

  void compare(const Sums& sums) {
    constexpr std::int64_t kMax = 1'000'000'000;
    if (++result_.combinations > kMax) {
      throw InputError(fmt::format(
          "min-max: more than {} allocations to enumerate; solve_min_max needs no enumeration",
          kMax));
    }
    const WideInteger spread =
        static_cast<std::int64_t>(costs_.size()) * sums.squares - sums.sum * sums.sum;
    const bool first = result_.combinations == 1;
    if (first || sums.highest < result_.highest_cost ||
        (sums.highest == result_.highest_cost && spread < spread_)) {
      result_.best.clear();
      result_.highest_cost = sums.highest;
      spread_ = spread;
    }
    if (sums.highest == result_.highest_cost && spread == spread_) {
      result_.best.push_back(sizes_);
    }
  }

  std::span<const PrefixCosts> costs_;
  std::vector<std::int64_t> most_after_;  ///< [rank] samples of the ranks from here on.
  std::vector<std::int64_t> sizes_;
  Enumeration result_;
  WideInteger spread_ = 0;
};

}  // namespace

Enumeration enumerate_min_max(std::span<const PrefixCosts> costs, std::int64_t global_batch) {
  // The same refusals as the solver's.
  (void)solve_min_max(costs, global_batch, TieBreak::None);
  return Enumerator(costs).run(global_batch);
}

}  // namespace stepsim

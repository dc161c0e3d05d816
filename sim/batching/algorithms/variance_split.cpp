#include "sim/batching/algorithms/variance_split.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// A split and its place in the plane of (sum, sum of squares) of the ranks' distances to the
/// highest cost; distances have the costs' variance.
struct Corner {
  Split split;
  WideInteger sum = 0;
  WideInteger squares = 0;
};

/// Direction in which a corner is sought: least `square` * sum of squares - `linear` * sum.
struct Direction {
  WideInteger square = 0;
  WideInteger linear = 0;

  [[nodiscard]] WideInteger value(WideInteger distance) const {
    return (square * distance - linear) * distance;
  }
};

class Splitter {
 public:
  explicit Splitter(const SlackProblem& problem) : problem_(problem) {
    for (const std::int64_t samples : problem.fitting) {
      options_.push_back(std::min(samples - 1, problem.slack));
    }
  }

  [[nodiscard]] Corner solve(const Direction& direction) const {
    std::vector<std::vector<WideInteger>> values(options_.size());
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
      for (std::int64_t d = 0; d <= options_[rank]; ++d) {
        values[rank].push_back(direction.value(distance(rank, d)));
      }
    }
    Corner corner;
    corner.split = separable_allocation(values, problem_.slack);
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
      const WideInteger own = distance(rank, corner.split.taken[rank]);
      corner.sum += own;
      corner.squares += own * own;
    }
    return corner;
  }

 private:
  /// The distance from the highest cost to the rank's cost without its last d samples.
  [[nodiscard]] std::int64_t distance(std::size_t rank, std::int64_t d) const {
    return problem_.highest -
           problem_.costs[rank][static_cast<std::size_t>(problem_.fitting[rank] - d) - 1];
  }

  const SlackProblem& problem_;
  std::vector<std::int64_t> options_;
};

/// Ranks^2 times the variance.
WideInteger spread(const Corner& corner, std::int64_t ranks) {
  return ranks * corner.squares - corner.sum * corner.sum;
}

/// Less spread, then more taken from earlier ranks.
bool better(const Corner& a, const Corner& b, std::int64_t ranks) {
  const WideInteger own = spread(a, ranks);
  const WideInteger other = spread(b, ranks);
  return own != other ? own < other : a.split.taken > b.split.taken;
}

/// No sum in separable_allocation may leave 128 bits: 3 (ranks * highest)^2, over the options of a
/// rank.
void check_size(const SlackProblem& problem) {
  constexpr double kBits = 123;
  const double ranks = std::log2(static_cast<double>(problem.fitting.size()));
  const double options = std::log2(static_cast<double>(problem.slack + 1));
  const double cost = std::log2(static_cast<double>(problem.highest));
  if (2 * (ranks + cost) + options > kBits) {
    throw InputError(
        "min-max: a highest cost of {} over {} ranks is too large for tie_break = 'variance'; "
        "'leximax' has no such limit",
        problem.highest,
        problem.fitting.size());
  }
}

/// Sums at which the tangent of the variance has been solved, and what it gave.
struct Interval {
  WideInteger low = 0;
  WideInteger high = 0;
  Corner at_low;
  Corner at_high;

  /// Whether a sum strictly between could be that of its own tangent's corner: these sums rise with
  /// the tangent.
  [[nodiscard]] bool open() const {
    return at_low.sum < at_high.sum &&
           std::max(low + 1, at_low.sum) <= std::min(high - 1, at_high.sum);
  }

  /// The ends of the sums that are possible, which most often leave nothing between; then where the
  /// tangent has the slope of the line through both corners.
  [[nodiscard]] WideInteger next(std::int64_t ranks) const {
    if (at_low.sum > low) {
      return at_low.sum;
    }
    if (at_high.sum < high) {
      return at_high.sum;
    }
    const WideInteger even =
        ranks * (at_high.squares - at_low.squares) / (2 * (at_high.sum - at_low.sum));
    return std::clamp(even, low + 1, high - 1);
  }
};

}  // namespace

Split split_by_variance(const SlackProblem& problem) {
  check_size(problem);
  const Splitter splitter(problem);
  const auto ranks = static_cast<std::int64_t>(problem.fitting.size());
  // ranks Q - S^2 is concave, so its least corner also minimises its tangent there, which is
  // ranks Q - 2 s S with s that corner's own sum: only whole s need be tried.
  const auto solve = [&](WideInteger sum) { return splitter.solve({ranks, 2 * sum}); };
  const WideInteger most = static_cast<WideInteger>(ranks) * problem.highest;
  Corner best = solve(0);
  bool exact = best.split.exact;
  const auto keep = [&](const Corner& corner) {
    exact = exact && corner.split.exact;
    if (better(corner, best, ranks)) {
      best = corner;
    }
  };
  std::vector<Interval> intervals = {{0, most, best, solve(most)}};
  keep(intervals.back().at_high);
  while (!intervals.empty()) {
    Interval interval = std::move(intervals.back());
    intervals.pop_back();
    if (!interval.open()) {
      continue;
    }
    const WideInteger middle = interval.next(ranks);
    const Corner corner = solve(middle);
    keep(corner);
    intervals.push_back({interval.low, middle, std::move(interval.at_low), corner});
    intervals.push_back({middle, interval.high, corner, std::move(interval.at_high)});
  }
  best.split.exact = exact;
  return std::move(best.split);
}

Split split_by_sum(const SlackProblem& problem) {
  return Splitter(problem).solve({0, 1}).split;
}

}  // namespace stepsim

#include "sim/batching/algorithms/variance_split.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

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
};

/// The base-2 logarithm of what no sum in separable_allocation exceeds: 3 (ranks * highest)^2, over
/// the options of a rank.
double sum_bits(const SlackProblem& problem) {
  const double ranks = std::log2(static_cast<double>(problem.fitting.size()));
  const double options = std::log2(static_cast<double>(problem.slack + 1));
  const double cost = std::log2(static_cast<double>(problem.highest));
  return 2 * (ranks + cost) + options + 2;
}

class Splitter {
 public:
  explicit Splitter(const SlackProblem& problem)
      : problem_(problem), is_narrow_(sum_bits(problem) < 61) {
    first_.reserve(problem.fitting.size() + 1);
    distances_.resize(at(sum_of(problem.fitting, std::identity())));
    std::size_t end = 0;
    for (std::size_t rank = 0; rank < problem.fitting.size(); ++rank) {
      first_.push_back(end);
      const std::int64_t most = std::min(problem.fitting[rank] - 1, problem.slack);
      for (std::int64_t d = 0; d <= most; ++d) {
        // From the highest cost to the rank's cost without its last d samples.
        distances_[end++] =
            problem.highest - problem.costs[rank][at(problem.fitting[rank] - d) - 1];
      }
    }
    first_.push_back(end);
    distances_.resize(end);
  }

  [[nodiscard]] Corner solve(const Direction& direction) {
    Corner corner;
    corner.split = is_narrow_ ? allocation(direction, narrow_) : allocation(direction, wide_);
    for (std::size_t rank = 0; rank < corner.split.taken.size(); ++rank) {
      const WideInteger own = distances_[first_[rank] + at(corner.split.taken[rank])];
      corner.sum += own;
      corner.squares += own * own;
    }
    return corner;
  }

 private:
  template <typename Integer>
  [[nodiscard]] Split allocation(const Direction& direction, std::vector<Integer>& values) const {
    const auto square = static_cast<Integer>(direction.square);
    const auto linear = static_cast<Integer>(direction.linear);
    values.resize(distances_.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = (square * distances_[i] - linear) * distances_[i];
    }
    return separable_allocation<Integer>(values, first_, problem_.slack);
  }

  const SlackProblem& problem_;
  bool is_narrow_;                  ///< Whether all sums fit into 64 bits.
  std::vector<std::size_t> first_;  ///< [rank] of distances_, and the end.
  std::vector<std::int64_t> distances_;
  std::vector<std::int64_t> narrow_;  ///< Values of the latest direction, whichever are used.
  std::vector<WideInteger> wide_;
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

void check_size(const SlackProblem& problem) {
  if (sum_bits(problem) > 125) {
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
  Splitter splitter(problem);
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

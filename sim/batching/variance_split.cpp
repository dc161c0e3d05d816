#include "sim/batching/variance_split.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "costmodel/input_error.h"

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
    corner.split = separable_split(values, problem_.slack);
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
      const WideInteger own = distance(rank, corner.split.taken[rank]);
      corner.sum += own;
      corner.squares += own * own;
    }
    return corner;
  }

 private:
  /// Of the highest cost to the rank's cost without its last d samples.
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

/// No sum in separable_split may leave 128 bits: ranks^2 * highest^3, over the options of a rank.
void check_size(const SlackProblem& problem) {
  constexpr double kBits = 121;
  const double ranks = std::log2(static_cast<double>(problem.fitting.size()));
  const double options = std::log2(static_cast<double>(problem.slack + 1));
  const double cost = std::log2(static_cast<double>(problem.highest));
  if (2 * ranks + 3 * cost + options > kBits) {
    throw InputError(fmt::format(
        "min-max: a highest cost of {} over {} ranks is too large for tie_break = 'variance'; "
        "'leximax' has no such limit",
        problem.highest,
        problem.fitting.size()));
  }
}

/// Corners between two known ones, which minimise the directions between these two.
struct Edge {
  Corner left;
  Corner right;
  Direction lowest;
  Direction highest;

  /// Whether the least variance can lie strictly between the corners: it minimises its own tangent,
  /// linear / square = 2 sum / ranks, and has a sum between theirs.
  [[nodiscard]] bool promising(std::int64_t ranks) const {
    return left.sum != right.sum && 2 * right.sum * lowest.square >= ranks * lowest.linear &&
           2 * left.sum * highest.square <= ranks * highest.linear;
  }
};

}  // namespace

Split split_by_variance(const SlackProblem& problem) {
  check_size(problem);
  const Splitter splitter(problem);
  const auto ranks = static_cast<std::int64_t>(problem.fitting.size());
  // A sum is at least 0 and at most ranks * highest, so a tangent is 0 .. 2 highest.
  const Direction flat = {1, 0};
  const Direction steep = {1, 2 * static_cast<WideInteger>(problem.highest)};
  Corner best = splitter.solve(flat);
  std::vector<Edge> edges = {{best, splitter.solve(steep), flat, steep}};
  bool exact = true;
  while (!edges.empty()) {
    const Edge edge = std::move(edges.back());
    edges.pop_back();
    exact = exact && edge.left.split.exact && edge.right.split.exact;
    if (better(edge.right, best, ranks)) {
      best = edge.right;
    }
    if (!edge.promising(ranks)) {
      continue;
    }
    // Between two corners lies another one exactly where the line through them can be undercut.
    const Direction across = {edge.right.sum - edge.left.sum,
                              edge.right.squares - edge.left.squares};
    const auto height = [&across](const Corner& corner) {
      return across.square * corner.squares - across.linear * corner.sum;
    };
    Corner middle = splitter.solve(across);
    exact = exact && middle.split.exact;
    if (height(middle) < height(edge.left)) {
      edges.push_back({edge.left, middle, edge.lowest, across});
      edges.push_back({std::move(middle), edge.right, across, edge.highest});
    }
  }
  best.split.exact = exact;
  return std::move(best.split);
}

Split split_by_sum(const SlackProblem& problem) {
  return Splitter(problem).solve({0, 1}).split;
}

}  // namespace stepsim

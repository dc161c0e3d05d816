#include "sim/batching/algorithms/separable_allocation.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace stepsim {
namespace {

constexpr std::size_t kMaxCells = std::size_t{1} << 22;

/// One edge of the lower hull of a rank's values: from d to d + width at a constant slope.
struct Edge {
  double slope = 0;
  std::size_t rank = 0;
  std::int64_t width = 0;
  WideInteger rise = 0;  ///< The rise of the value over the whole edge.
};

WideInteger floor_div(WideInteger a, std::int64_t b) {
  const WideInteger quotient = a / b;
  return quotient * b > a ? quotient - 1 : quotient;
}

/// Corners of the lower hull of (d, values[d]).
std::vector<std::size_t> lower_hull(const std::vector<WideInteger>& values) {
  std::vector<std::size_t> corners;
  const auto slope = [&values](std::size_t from, std::size_t to) {
    return static_cast<double>(values[to] - values[from]) / static_cast<double>(to - from);
  };
  for (std::size_t d = 0; d < values.size(); ++d) {
    while (corners.size() > 1 &&
           slope(corners[corners.size() - 2], corners.back()) >= slope(corners.back(), d)) {
      corners.pop_back();
    }
    corners.push_back(d);
  }
  return corners;
}

std::vector<Edge> hull_edges(const std::vector<std::vector<WideInteger>>& values) {
  std::vector<Edge> edges;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    const auto corners = lower_hull(values[rank]);
    for (std::size_t i = 1; i < corners.size(); ++i) {
      Edge edge;
      edge.rank = rank;
      edge.width = static_cast<std::int64_t>(corners[i] - corners[i - 1]);
      edge.rise = values[rank][corners[i]] - values[rank][corners[i - 1]];
      edge.slope = static_cast<double>(edge.rise) / static_cast<double>(edge.width);
      edges.push_back(edge);
    }
  }
  return edges;
}

/// A feasible split along the hulls, and the price of one unit at its margin.
struct Relaxed {
  std::vector<std::int64_t> taken;
  WideInteger price = 0;
};

Relaxed follow_hulls(const std::vector<std::vector<WideInteger>>& values, std::int64_t total) {
  auto edges = hull_edges(values);
  const auto cheaper = [](const Edge& a, const Edge& b) {
    return a.slope != b.slope ? a.slope < b.slope : a.rank < b.rank;
  };
  // Every edge is at least one unit wide, so `total` of them are enough.
  const auto needed = std::min(edges.size(), static_cast<std::size_t>(total));
  const auto middle = edges.begin() + static_cast<std::ptrdiff_t>(needed);
  std::nth_element(edges.begin(), middle, edges.end(), cheaper);
  std::sort(edges.begin(), middle, cheaper);
  Relaxed result;
  result.taken.resize(values.size());
  std::int64_t left = total;
  for (auto edge = edges.begin(); left > 0; ++edge) {
    const std::int64_t width = std::min(left, edge->width);
    result.taken[edge->rank] += width;
    result.price = floor_div(edge->rise, edge->width);
    left -= width;
  }
  return result;
}

/// What remains open of one rank: amounts whose reduced value is small enough.
struct Choice {
  std::int64_t taken = 0;
  WideInteger excess = 0;  ///< How far it is above the rank's least reduced value.
};

using Choices = std::vector<std::vector<Choice>>;  ///< [rank], ascending in taken.

Choices open_choices(const std::vector<std::vector<WideInteger>>& values, const Relaxed& relaxed) {
  std::vector<WideInteger> least(values.size());
  const auto reduced = [&](std::size_t rank, std::size_t d) {
    return values[rank][d] - relaxed.price * static_cast<std::int64_t>(d);
  };
  WideInteger gap = 0;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    least[rank] = values[rank][0];
    for (std::size_t d = 1; d < values[rank].size(); ++d) {
      least[rank] = std::min(least[rank], reduced(rank, d));
    }
    gap += reduced(rank, static_cast<std::size_t>(relaxed.taken[rank])) - least[rank];
  }
  Choices choices(values.size());
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    for (std::size_t d = 0; d < values[rank].size(); ++d) {
      const WideInteger excess = reduced(rank, d) - least[rank];
      if (excess <= gap) {
        choices[rank].push_back({static_cast<std::int64_t>(d), excess});
      }
    }
  }
  return choices;
}

/// With no excess anywhere and no holes between the amounts, earlier ranks simply take the most.
std::optional<std::vector<std::int64_t>> take_greedily(const Choices& choices, std::int64_t total) {
  std::int64_t left = total;
  for (const auto& rank : choices) {
    const auto width = rank.back().taken - rank.front().taken;
    const auto costs = [](const Choice& choice) { return choice.excess != 0; };
    if (static_cast<std::int64_t>(rank.size()) != width + 1 || std::ranges::any_of(rank, costs)) {
      return std::nullopt;
    }
    left -= rank.front().taken;
  }
  std::vector<std::int64_t> taken;
  for (const auto& rank : choices) {
    const auto more = std::min(left, rank.back().taken - rank.front().taken);
    taken.push_back(rank.front().taken + more);
    left -= more;
  }
  return taken;
}

/// The dynamic programme over the ranks that have a choice left.
class Programme {
 public:
  Programme(const Choices& choices, std::int64_t total) : choices_(choices), left_(total) {
    for (std::size_t rank = 0; rank < choices.size(); ++rank) {
      left_ -= choices[rank].front().taken;
      if (choices[rank].size() > 1) {
        open_.push_back(rank);
      }
    }
    width_ = static_cast<std::size_t>(left_) + 1;
  }

  [[nodiscard]] std::size_t cells() const { return (open_.size() + 1) * width_; }

  [[nodiscard]] std::vector<std::int64_t> solve() {
    fill();
    std::vector<std::int64_t> taken;
    taken.reserve(choices_.size());
    for (const auto& rank : choices_) {
      taken.push_back(rank.front().taken);
    }
    std::int64_t left = left_;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      const auto& rank = choices_[open_[i]];
      // The largest amount first: the lexicographically largest of the best splits.
      for (auto choice = rank.rbegin(); choice != rank.rend(); ++choice) {
        const std::int64_t rest = left - (choice->taken - rank.front().taken);
        if (rest >= 0 && best(i + 1, rest) != kImpossible &&
            best(i + 1, rest) + choice->excess == best(i, left)) {
          taken[open_[i]] = choice->taken;
          left = rest;
          break;
        }
      }
    }
    return taken;
  }

 private:
  static constexpr WideInteger kImpossible = -1;

  [[nodiscard]] WideInteger& best(std::size_t i, std::int64_t left) {
    return best_[i * width_ + static_cast<std::size_t>(left)];
  }

  /// best(i, left): least excess with which the open ranks i, i + 1, … take `left` in all.
  void fill() {
    best_.assign(cells(), kImpossible);
    best(open_.size(), 0) = 0;
    for (std::size_t i = open_.size(); i-- > 0;) {
      const auto& rank = choices_[open_[i]];
      for (const Choice& choice : rank) {
        const std::int64_t more = choice.taken - rank.front().taken;
        for (std::int64_t left = more; left <= left_; ++left) {
          const WideInteger rest = best(i + 1, left - more);
          WideInteger& cell = best(i, left);
          if (rest != kImpossible && (cell == kImpossible || rest + choice.excess < cell)) {
            cell = rest + choice.excess;
          }
        }
      }
    }
  }

  const Choices& choices_;
  std::vector<std::size_t> open_;
  std::int64_t left_;
  std::size_t width_ = 0;
  std::vector<WideInteger> best_;
};

}  // namespace

Split separable_allocation(const std::vector<std::vector<WideInteger>>& values,
                           std::int64_t total) {
  if (total == 0) {
    return {std::vector<std::int64_t>(values.size()), true};
  }
  const Relaxed relaxed = follow_hulls(values, total);
  const Choices choices = open_choices(values, relaxed);
  if (auto taken = take_greedily(choices, total)) {
    return {std::move(*taken), true};
  }
  Programme programme(choices, total);
  if (programme.cells() > kMaxCells) {
    return {relaxed.taken, false};
  }
  return {programme.solve(), true};
}

}  // namespace stepsim

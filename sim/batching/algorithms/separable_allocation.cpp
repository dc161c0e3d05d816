#include "sim/batching/algorithms/separable_allocation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <queue>
#include <utility>

#include "costmodel/base/index.h"

namespace stepsim {
namespace {

constexpr std::size_t kMaxCells = std::size_t{1} << 22;

/// The values of all ranks.
template <typename Integer>
struct Values {
  std::span<const Integer> all;
  std::span<const std::size_t> first;

  [[nodiscard]] std::size_t ranks() const { return first.size() - 1; }
  [[nodiscard]] std::span<const Integer> of(std::size_t rank) const {
    return all.subspan(first[rank], first[rank + 1] - first[rank]);
  }
};

/// One edge of the lower hull of a rank's values: from d to d + width at a constant slope.
template <typename Integer>
struct Edge {
  double slope = 0;
  std::size_t rank = 0;
  std::int64_t width = 0;
  Integer rise = 0;  ///< The rise of the value over the whole edge.

  bool operator<(const Edge& other) const {
    return slope != other.slope ? slope < other.slope : rank < other.rank;
  }
};

template <typename Integer>
Integer floor_div(Integer a, std::int64_t b) {
  const Integer quotient = a / b;
  return quotient * b > a ? quotient - 1 : quotient;
}

/// Sets `edges` to those of the lower hull of (d, values[d]).
template <typename Integer>
void find_lower_hull(std::span<const Integer> values,
                     std::size_t rank,
                     std::vector<Edge<Integer>>& edges) {
  edges.clear();
  for (std::size_t d = 1; d < values.size(); ++d) {
    Edge<Integer> edge;
    edge.rank = rank;
    edge.width = 1;
    edge.rise = values[d] - values[d - 1];
    edge.slope = static_cast<double>(edge.rise);
    while (!edges.empty() && edges.back().slope >= edge.slope) {
      edge.width += edges.back().width;
      edge.rise += edges.back().rise;
      edge.slope = static_cast<double>(edge.rise) / static_cast<double>(edge.width);
      edges.pop_back();
    }
    edges.push_back(edge);
  }
}

/// Whether the lower hull of (d, values[d]) may begin with a slope below this one.
template <typename Integer>
bool may_begin_below(std::span<const Integer> values, double slope) {
  const auto above = static_cast<Integer>(std::ceil(slope));
  Integer line = values[0];
  bool below = false;
  for (std::size_t d = 1; d < values.size(); ++d) {
    line += above;
    below |= values[d] <= line;
  }
  return below;
}

/// The `count` edges of all hulls that come first, in their order.
template <typename Integer>
std::vector<Edge<Integer>> first_edges(const Values<Integer>& values, std::size_t count) {
  std::priority_queue<Edge<Integer>> kept;  // The last of them in front.
  std::vector<Edge<Integer>> hull;
  for (std::size_t rank = 0; rank < values.ranks(); ++rank) {
    const std::span<const Integer> own = values.of(rank);
    if (kept.size() == count && !may_begin_below(own, kept.top().slope)) {
      continue;  // Most ranks give up nothing.
    }
    find_lower_hull(own, rank, hull);
    for (const Edge<Integer>& edge : hull) {
      if (kept.size() == count) {
        if (!(edge < kept.top())) {
          break;  // Those that follow on the hull are steeper.
        }
        kept.pop();
      }
      kept.push(edge);
    }
  }
  std::vector<Edge<Integer>> edges;
  for (; !kept.empty(); kept.pop()) {
    edges.push_back(kept.top());
  }
  std::ranges::reverse(edges);
  return edges;
}

/// A feasible split along the hulls, and the price of one unit at its margin.
template <typename Integer>
struct Relaxed {
  std::vector<std::int64_t> taken;
  Integer price = 0;
};

template <typename Integer>
Relaxed<Integer> follow_hulls(const Values<Integer>& values, std::int64_t total) {
  Relaxed<Integer> result;
  result.taken.resize(values.ranks());
  std::int64_t left = total;
  // Every edge is at least one unit wide, so `total` of them are enough.
  const auto edges = first_edges(values, at(total));
  for (auto edge = edges.begin(); left > 0; ++edge) {
    const std::int64_t width = std::min(left, edge->width);
    result.taken[edge->rank] += width;
    result.price = floor_div(edge->rise, edge->width);
    left -= width;
  }
  return result;
}

/// An amount whose reduced value is small enough.
template <typename Integer>
struct Choice {
  std::int64_t taken = 0;
  Integer excess = 0;  ///< How far it is above the rank's least reduced value.
};

/// What remains open: the choices of all ranks, ascending in taken within a rank.
template <typename Integer>
struct Choices {
  std::vector<Choice<Integer>> all;
  std::vector<std::size_t> first;  ///< [rank] and the end.

  [[nodiscard]] std::size_t ranks() const { return first.size() - 1; }
  [[nodiscard]] std::span<const Choice<Integer>> of(std::size_t rank) const {
    return std::span(all).subspan(first[rank], first[rank + 1] - first[rank]);
  }
};

/// A rank's least reduced value, the least of its others, and the amount of the former.
template <typename Integer>
struct Least {
  Integer value = 0;
  Integer next = 0;
  std::int64_t taken = 0;
};

/// `values`: those of a rank. Most ranks are best off with nothing, which takes no branch to see.
template <typename Integer>
Least<Integer> find_least(std::span<const Integer> values, Integer price) {
  Integer other = values[0];
  Integer paid = 0;
  for (std::size_t d = 1; d < values.size(); ++d) {
    paid += price;
    const Integer value = values[d] - paid;
    other = d == 1 || value < other ? value : other;
  }
  if (values.size() == 1 || other >= values[0]) {
    return {values[0], other, 0};
  }
  Least<Integer> least{values[0], values[0], 0};
  for (std::size_t d = 1; d < values.size(); ++d) {
    const Integer value = values[d] - price * static_cast<std::int64_t>(d);
    if (value < least.value) {
      least = {value, least.value, static_cast<std::int64_t>(d)};
    } else if (d == 1 || value < least.next) {
      least.next = value;
    }
  }
  return least;
}

template <typename Integer>
Choices<Integer> open_choices(const Values<Integer>& values, const Relaxed<Integer>& relaxed) {
  const auto reduced = [&](std::span<const Integer> own, std::size_t d) {
    return own[d] - relaxed.price * static_cast<std::int64_t>(d);
  };
  std::vector<Least<Integer>> least;
  least.reserve(values.ranks());
  Integer gap = 0;
  for (std::size_t rank = 0; rank < values.ranks(); ++rank) {
    const std::span<const Integer> own = values.of(rank);
    least.push_back(find_least(own, relaxed.price));
    gap += reduced(own, at(relaxed.taken[rank])) - least.back().value;
  }
  Choices<Integer> choices;
  choices.first.reserve(values.ranks() + 1);
  choices.all.reserve(values.ranks());
  for (std::size_t rank = 0; rank < values.ranks(); ++rank) {
    choices.first.push_back(choices.all.size());
    const std::span<const Integer> own = values.of(rank);
    if (own.size() == 1 || least[rank].next - least[rank].value > gap) {
      choices.all.push_back({least[rank].taken, 0});
      continue;
    }
    for (std::size_t d = 0; d < own.size(); ++d) {
      const Integer excess = reduced(own, d) - least[rank].value;
      if (excess <= gap) {
        choices.all.push_back({static_cast<std::int64_t>(d), excess});
      }
    }
  }
  choices.first.push_back(choices.all.size());
  return choices;
}

/// With no excess anywhere and no holes between the amounts, earlier ranks simply take the most.
template <typename Integer>
std::optional<std::vector<std::int64_t>> take_greedily(const Choices<Integer>& choices,
                                                       std::int64_t total) {
  std::int64_t left = total;
  for (std::size_t r = 0; r < choices.ranks(); ++r) {
    const auto rank = choices.of(r);
    const auto width = rank.back().taken - rank.front().taken;
    const auto costs = [](const Choice<Integer>& choice) { return choice.excess != 0; };
    if (static_cast<std::int64_t>(rank.size()) != width + 1 || std::ranges::any_of(rank, costs)) {
      return std::nullopt;
    }
    left -= rank.front().taken;
  }
  std::vector<std::int64_t> taken;
  for (std::size_t r = 0; r < choices.ranks(); ++r) {
    const auto rank = choices.of(r);
    const auto more = std::min(left, rank.back().taken - rank.front().taken);
    taken.push_back(rank.front().taken + more);
    left -= more;
  }
  return taken;
}

/// The dynamic programme over the ranks that have a choice left.
template <typename Integer>
class Programme {
 public:
  Programme(const Choices<Integer>& choices, std::int64_t total) : choices_(choices), left_(total) {
    for (std::size_t rank = 0; rank < choices.ranks(); ++rank) {
      left_ -= choices.of(rank).front().taken;
      if (choices.of(rank).size() > 1) {
        open_.push_back(rank);
      }
    }
    width_ = at(left_) + 1;
  }

  [[nodiscard]] std::size_t cells() const { return (open_.size() + 1) * width_; }

  [[nodiscard]] std::vector<std::int64_t> solve() {
    fill();
    std::vector<std::int64_t> taken;
    taken.reserve(choices_.ranks());
    for (std::size_t rank = 0; rank < choices_.ranks(); ++rank) {
      taken.push_back(choices_.of(rank).front().taken);
    }
    std::int64_t left = left_;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      const auto rank = choices_.of(open_[i]);
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
  static constexpr Integer kImpossible = -1;

  [[nodiscard]] Integer& best(std::size_t i, std::int64_t left) {
    return best_[i * width_ + at(left)];
  }

  /// best(i, left): least excess with which the open ranks i, i + 1, … take `left` in all.
  void fill() {
    best_.assign(cells(), kImpossible);
    best(open_.size(), 0) = 0;
    for (std::size_t i = open_.size(); i-- > 0;) {
      const auto rank = choices_.of(open_[i]);
      for (const Choice<Integer>& choice : rank) {
        const std::int64_t more = choice.taken - rank.front().taken;
        for (std::int64_t left = more; left <= left_; ++left) {
          const Integer rest = best(i + 1, left - more);
          Integer& cell = best(i, left);
          if (rest != kImpossible && (cell == kImpossible || rest + choice.excess < cell)) {
            cell = rest + choice.excess;
          }
        }
      }
    }
  }

  const Choices<Integer>& choices_;
  std::vector<std::size_t> open_;
  std::int64_t left_;
  std::size_t width_ = 0;
  std::vector<Integer> best_;
};

}  // namespace

template <typename Integer>
Split separable_allocation(std::span<const Integer> all,
                           std::span<const std::size_t> first,
                           std::int64_t total) {
  const Values<Integer> values{all, first};
  if (total == 0) {
    return {std::vector<std::int64_t>(values.ranks()), true};
  }
  const Relaxed<Integer> relaxed = follow_hulls(values, total);
  const Choices<Integer> choices = open_choices(values, relaxed);
  if (auto taken = take_greedily(choices, total)) {
    return {std::move(*taken), true};
  }
  Programme<Integer> programme(choices, total);
  if (programme.cells() > kMaxCells) {
    return {relaxed.taken, false};
  }
  return {programme.solve(), true};
}

template Split separable_allocation(std::span<const std::int64_t>,
                                    std::span<const std::size_t>,
                                    std::int64_t);
template Split separable_allocation(std::span<const WideInteger>,
                                    std::span<const std::size_t>,
                                    std::int64_t);

}  // namespace stepsim

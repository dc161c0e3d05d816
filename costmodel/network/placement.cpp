#include "costmodel/network/placement.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"

namespace stepsim {
namespace {

/// Reads one whole number of a placement.
int placed_number(std::string_view part, std::string_view text) {
  const auto number = parse_number<int>(part);
  if (!number || *number < 1 || *number > kMaxPlacedRanks) {
    throw InputError(
        "'{}' is no placement; expected the ranks of one node (\"4\"), of each node "
        "(\"1+2+4\"), or nodes x ranks (\"2x8\")",
        printable(std::string(text)));
  }
  return *number;
}

}  // namespace

Placement::Placement(std::vector<int> node_ranks) : node_ranks_(std::move(node_ranks)) {
  if (node_ranks_.empty() || std::ranges::min(node_ranks_) < 1) {
    throw InputError("a placement has at least one node, and each node at least one rank");
  }
  const auto ranks = std::accumulate(node_ranks_.begin(), node_ranks_.end(), std::int64_t{0});
  if (ranks > kMaxPlacedRanks) {
    throw InputError("a placement of {} ranks; expected at most {}", ranks, kMaxPlacedRanks);
  }
  ranks_ = static_cast<int>(ranks);
}

Placement Placement::filled(int ranks, int per_node) {
  std::vector<int> nodes;
  const int full = per_node > 0 ? per_node : ranks;
  for (int left = ranks; left > 0; left -= full) {
    nodes.push_back(std::min(left, full));
  }
  return Placement(std::move(nodes));
}

int Placement::fullest() const {
  return std::ranges::max(node_ranks_);
}

bool Placement::is_even() const {
  return std::ranges::adjacent_find(node_ranks_, std::not_equal_to<>()) == node_ranks_.end();
}

int Placement::node_of(int rank) const {
  int node = 0;
  for (; rank >= node_ranks_[static_cast<std::size_t>(node)]; ++node) {
    rank -= node_ranks_[static_cast<std::size_t>(node)];
  }
  return node;
}

Placement Placement::first(int ranks) const {
  std::vector<int> nodes;
  for (int node = 0; ranks > 0; ++node) {
    nodes.push_back(std::min(ranks, node_ranks_[static_cast<std::size_t>(node)]));
    ranks -= nodes.back();
  }
  return Placement(std::move(nodes));
}

Placement parse_placement(std::string_view text) {
  const std::size_t times = text.find('x');
  if (times != std::string_view::npos) {
    const int nodes = placed_number(text.substr(0, times), text);
    return Placement(std::vector<int>(static_cast<std::size_t>(nodes),
                                      placed_number(text.substr(times + 1), text)));
  }
  std::vector<int> nodes;
  for (std::string_view rest = text;;) {
    const std::size_t plus = rest.find('+');
    nodes.push_back(placed_number(rest.substr(0, plus), text));
    if (plus == std::string_view::npos) {
      return Placement(std::move(nodes));
    }
    rest.remove_prefix(plus + 1);
  }
}

std::string text_of(const Placement& placement) {
  if (placement.nodes() > 1 && placement.is_even()) {
    return fmt::format("{}x{}", placement.nodes(), placement.fullest());
  }
  return fmt::format("{}", fmt::join(placement.node_ranks(), "+"));
}

}  // namespace stepsim

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepsim {

/// How the ranks of a job lie on nodes: the first ranks are on node 0, the next on node 1, and so
/// on. Nodes may hold different numbers of ranks.
class Placement {
 public:
  /// One rank on one node.
  Placement() : Placement(std::vector<int>{1}) {}
  /// `node_ranks`: [node] its ranks. Raises InputError: there is no node, a node is empty, or there
  /// are more than kMaxPlacedRanks ranks.
  explicit Placement(std::vector<int> node_ranks);

  /// Fills nodes of `per_node` ranks, of which the last may be partly filled. 0 stands for a single
  /// node.
  [[nodiscard]] static Placement filled(int ranks, int per_node);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int nodes() const { return static_cast<int>(node_ranks_.size()); }
  /// Returns the ranks of the node that has most of them.
  [[nodiscard]] int fullest() const;
  [[nodiscard]] bool is_even() const;  ///< All nodes hold equally many ranks.
  [[nodiscard]] int node_of(int rank) const;
  /// [node] ranks
  [[nodiscard]] std::span<const int> node_ranks() const { return node_ranks_; }
  /// Returns where the first `ranks` of the ranks lie.
  [[nodiscard]] Placement first(int ranks) const;

  bool operator==(const Placement&) const = default;

 private:
  std::vector<int> node_ranks_;
  int ranks_ = 0;
};

inline constexpr int kMaxPlacedRanks = 65536;

/// Reads "4" (one node), "1+2+4" (three nodes) or "2x8" (two nodes of eight ranks). Raises
/// InputError.
[[nodiscard]] Placement parse_placement(std::string_view text);

/// Returns what parse_placement() reads, as short as it can be: "4", "1+2+4", "2x8".
[[nodiscard]] std::string text_of(const Placement& placement);

}  // namespace stepsim

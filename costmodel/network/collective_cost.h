#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stepsim {

/// The kinds of collectives. The bytes of a collective are those of its whole buffer. Every rank
/// holds all of it in an all-reduce, broadcast or reduce; in a reduce-scatter, all-gather or
/// all-to-all it is `ranks` times the part of one rank.
enum class CollectiveKind { AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, AllToAll };

[[nodiscard]] std::string_view name_of(CollectiveKind kind);  ///< "all_reduce", "all_gather", …
/// Raises InputError for an unknown name.
[[nodiscard]] CollectiveKind parse_collective_kind(std::string_view name);
[[nodiscard]] std::span<const std::string> collective_kind_names();

/// One direction of a link between two ranks.
struct Link {
  double latency_s = 0;    ///< Seconds per message.
  double bytes_per_s = 0;  ///< Must be more than 0.

  bool operator==(const Link&) const = default;
};

/// The links of ranks that are spread over nodes. In the formulas below, g is the number of ranks
/// on the fullest node and m the number of nodes.
struct NodeLinks {
  int ranks = 1;  ///< At least `nodes`.
  int nodes = 1;  ///< At least 1.
  Link intra;     ///< One rank's link inside its node; unused when every node has one rank.
  Link inter;     ///< One rank's share of the links between nodes; unused on one node.
  /// Bandwidth of all network adapters of a node together, of the node where it is smallest.
  double node_bytes_per_s = 0;
  int fullest = 0;  ///< Ranks on the fullest node; 0: they lie as evenly as they can.

  /// Returns the ranks of the fullest node.
  [[nodiscard]] int most_ranks() const {
    return fullest > 0 ? fullest : (ranks + nodes - 1) / nodes;
  }
  /// Tells whether all nodes hold equally many ranks.
  [[nodiscard]] bool is_even() const { return ranks == nodes * most_ranks(); }
};

/// Returns busbw / algbw: 2(n-1)/n for all-reduce, (n-1)/n for reduce-scatter, all-gather and
/// all-to-all, 1 for broadcast and reduce; 0 for one rank.
/// Source: nccl-tests, doc/PERFORMANCE.md.
[[nodiscard]] double bus_factor(CollectiveKind kind, int ranks);

/// Returns the bytes that a rank sends (and receives) when the ranks form a ring: bus_factor()
/// times `bytes`. Exceptions are the last rank of a broadcast and the root of a reduce, which send
/// nothing.
[[nodiscard]] double ring_bytes_per_rank(CollectiveKind kind, double bytes, int ranks);

/// Returns the number of consecutive steps of a ring: 2(n-1) for all-reduce, n-1 for all others.
[[nodiscard]] int ring_steps(CollectiveKind kind, int ranks);

// The closed forms below return seconds. n = ranks >= 1; one rank takes no time. Logarithms are
// rounded up.

/// A ring takes ring_steps * latency + ring_bytes_per_rank / bandwidth. Broadcast and reduce are
/// pipelined chains.
[[nodiscard]] double ring_time(CollectiveKind kind, double bytes, int ranks, const Link& link);

/// An all-reduce that exchanges the whole buffer in every round takes
/// log2(n) (latency + bytes / bandwidth).
[[nodiscard]] double recursive_doubling_time(double bytes, int ranks, const Link& link);

/// An all-reduce by recursive halving and doubling takes
/// 2 log2(n) latency + 2(n-1)/n bytes / bandwidth.
[[nodiscard]] double rabenseifner_time(double bytes, int ranks, const Link& link);

/// A pipelined double binary tree takes 2 log2(n) latency + 2 bytes / bandwidth for an all-reduce
/// (two ranks send `bytes` only once), and log2(n) latency + bytes / bandwidth for a broadcast or
/// reduce. Raises std::logic_error for other kinds.
[[nodiscard]] double double_tree_time(CollectiveKind kind,
                                      double bytes,
                                      int ranks,
                                      const Link& link);

/// Parallel rings over all ranks, enough of them to use all adapters of a node. Of the ring's
/// steps, 2(m-1) (all-reduce) or m-1 (others) cross nodes. Bytes move at the smaller of the intra
/// bandwidth and that of a node.
[[nodiscard]] double flat_ring_time(CollectiveKind kind, double bytes, const NodeLinks& links);

/// A two-level all-reduce: a reduce-scatter inside the nodes, an all-reduce of 1/g of the bytes
/// between them by every rank in parallel, and an all-gather inside. With S bytes, latency a and
/// bandwidth B of the intra (i) and inter (x) links it takes
///
///     2 [(g-1) a_i + (g-1)/g S/B_i] + 2(m-1) a_x + 2(m-1)/m (S/g)/B_x
///
/// and reduce-scatter and all-gather take half of that. B_x is the smaller of a rank's share and
/// B_node / g. Raises std::logic_error for other kinds, and when nodes hold unequal numbers of
/// ranks.
[[nodiscard]] double two_level_time(CollectiveKind kind, double bytes, const NodeLinks& links);

/// A double binary tree over the nodes with a chain inside each. An all-reduce takes
///
///     2 [(g-1) a_i + log2(m) a_x] + max(2 S/B_i, (m = 2 ? 1 : 2) S/B_node)
///
/// since two nodes exchange S only once in each direction, as do two ranks on one node. Broadcast
/// and reduce take half the latency and move S once. Raises std::logic_error for other kinds.
[[nodiscard]] double node_tree_time(CollectiveKind kind, double bytes, const NodeLinks& links);

/// An all-to-all in which every rank exchanges with every other takes (g-1) a_i + (n-g) a_x plus
/// the longer of two transfers: what stays in the node, (g-1)/n S/B_i, and what leaves it, (n-g)/n
/// S/B_x with B_x as in two_level_time().
[[nodiscard]] double pairwise_time(double bytes, const NodeLinks& links);

}  // namespace stepsim

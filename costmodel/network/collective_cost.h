#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stepsim {

/// What ranks do together. The bytes of a collective are those of its whole buffer: for all-reduce,
/// broadcast and reduce the buffer that every rank holds, for reduce-scatter, all-gather and
/// all-to-all `ranks` times the part of one rank.
enum class CollectiveKind { AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, AllToAll };

[[nodiscard]] std::string_view name_of(CollectiveKind kind);  ///< "all_reduce", "all_gather", …
/// Raises InputError for an unknown name.
[[nodiscard]] CollectiveKind parse_collective_kind(std::string_view name);
[[nodiscard]] std::span<const std::string> collective_kind_names();

/// One direction of a connection.
struct Link {
  double latency_s = 0;    ///< Seconds per message.
  double bytes_per_s = 0;  ///< More than 0.

  bool operator==(const Link&) const = default;
};

/// The links of ranks on nodes. g = ranks per node, of the fullest one.
struct NodeLinks {
  int ranks = 1;  ///< At least `nodes`.
  int nodes = 1;  ///< At least 1.
  Link intra;     ///< Of a rank, inside its node; unused when every node has one rank.
  Link inter;     ///< Between nodes; bytes_per_s is the share of one rank. Unused on one node.
  double node_bytes_per_s = 0;  ///< All network adapters of a node together.
};

/// busbw / algbw: 2(n-1)/n for all-reduce, (n-1)/n for reduce-scatter, all-gather and all-to-all, 1
/// for broadcast and reduce; 0 for one rank.
/// Source: nccl-tests, doc/PERFORMANCE.md.
[[nodiscard]] double bus_factor(CollectiveKind kind, int ranks);

/// Bytes that a rank sends (and receives) when the ranks form a ring: bus_factor() times `bytes`.
/// The last rank of a broadcast and the root of a reduce send nothing.
[[nodiscard]] double ring_bytes_per_rank(CollectiveKind kind, double bytes, int ranks);

/// Steps of a ring one after the other: 2(n-1) for all-reduce, n-1 for all others.
[[nodiscard]] int ring_steps(CollectiveKind kind, int ranks);

// Closed forms, in seconds. n = ranks >= 1; one rank takes no time. Logarithms are rounded up.

/// ring_steps * latency + ring_bytes_per_rank / bandwidth; broadcast and reduce are pipelined
/// chains.
[[nodiscard]] double ring_time(CollectiveKind kind, double bytes, int ranks, const Link& link);

/// All-reduce, everything exchanged in every round: log2(n) (latency + bytes / bandwidth).
[[nodiscard]] double recursive_doubling_time(double bytes, int ranks, const Link& link);

/// All-reduce by recursive halving and doubling: 2 log2(n) latency + 2(n-1)/n bytes / bandwidth.
[[nodiscard]] double rabenseifner_time(double bytes, int ranks, const Link& link);

/// Pipelined double binary tree. All-reduce: 2 log2(n) latency + 2 bytes / bandwidth, where two
/// ranks send `bytes` once only; broadcast and reduce: log2(n) latency + bytes / bandwidth.
/// Raises std::logic_error for other kinds.
[[nodiscard]] double double_tree_time(CollectiveKind kind,
                                      double bytes,
                                      int ranks,
                                      const Link& link);

/// Rings over all ranks, as many side by side as use all adapters of a node. Of the steps
/// 2(nodes-1) (all-reduce) or nodes-1 cross nodes; bytes go at the smaller of the intra bandwidth
/// and that of a node.
[[nodiscard]] double flat_ring_time(CollectiveKind kind, double bytes, const NodeLinks& links);

/// Reduce-scatter inside the nodes, all-reduce of 1/g of the bytes between them by every rank in
/// parallel, all-gather inside:
///
///     2 [(g-1) a_i + (g-1)/g S/B_i] + 2(m-1) a_x + 2(m-1)/m (S/g)/B_x
///
/// and half of it for reduce-scatter and all-gather. B_x is the smaller of the share of a rank and
/// B_node / g. Raises std::logic_error for other kinds, and when nodes hold unequal numbers of
/// ranks.
[[nodiscard]] double two_level_time(CollectiveKind kind, double bytes, const NodeLinks& links);

/// Double binary tree over nodes with a chain inside each. All-reduce:
///
///     2 [(g-1) a_i + log2(m) a_x] + max(2 S/B_i, (m = 2 ? 1 : 2) S/B_node)
///
/// since two nodes exchange S only once in each direction, as do two ranks on one node; broadcast
/// and reduce: half the latency and S once. Raises std::logic_error for other kinds.
[[nodiscard]] double node_tree_time(CollectiveKind kind, double bytes, const NodeLinks& links);

/// All-to-all, every rank with every other: (g-1) a_i + (n-g) a_x + the longer of what stays in the
/// node, (g-1)/n S/B_i, and what leaves it, (n-g)/n S over the rank's share as in two_level_time().
[[nodiscard]] double pairwise_time(double bytes, const NodeLinks& links);

}  // namespace stepsim

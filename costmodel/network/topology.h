#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/network/collective_cost.h"
#include "costmodel/network/nccl_model.h"

namespace stepsim {

/// How a collective runs on a topology.
enum class CollectiveAlgorithm {
  Auto,               ///< The fastest of FlatRing, Tree and Hierarchical for these bytes.
  Ring,               ///< One ring; between nodes the share of a single rank (gloo).
  FlatRing,           ///< Rings side by side that use all adapters of a node (NCCL's Ring).
  Tree,               ///< Double binary tree over nodes, chains inside (NCCL's Tree).
  Hierarchical,       ///< Two levels of rings: inside the nodes, and between them.
  RecursiveDoubling,  ///< On several nodes every round is counted at the slower link.
  Rabenseifner,       ///< The same.
  Nccl                ///< All-reduce: the choice and time of NCCL's own tuning model.
};

[[nodiscard]] std::string_view name_of(CollectiveAlgorithm algorithm);  ///< "flat_ring", …
/// Raises InputError for an unknown name.
[[nodiscard]] CollectiveAlgorithm parse_collective_algorithm(std::string_view name);
[[nodiscard]] std::span<const std::string> collective_algorithm_names();

/// A link whose bytes take `factor` times as long. Exactly one of rank and node is given.
struct SlowLink {
  std::optional<int> rank;  ///< All links of this rank: inside its node and to the network.
  std::optional<int> node;  ///< The network adapters of this node.
  double factor = 1;

  bool operator==(const SlowLink&) const = default;
};

/// The links of a cluster whose collectives were never measured.
struct Topology {
  int ranks = 1;
  int ranks_per_node = 0;  ///< 0: all on one node.
  Link intra;              ///< Of a rank and direction, inside its node.
  /// Between nodes: latency of a message, and the bandwidth that one rank has to itself (its
  /// adapter, or its share of the node's); 0: the node's over its ranks. Unused on one node.
  Link inter;
  /// Bandwidth per direction of all adapters of a node together; 0: ranks_per_node times inter. A
  /// group uses the share of its ranks.
  double node_bytes_per_s = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::Auto;
  std::vector<SlowLink> slow_links;
  int nccl_channels = 0;                      ///< For Nccl: channels of its rings and trees.
  GpuGeneration gpu = GpuGeneration::Hopper;  ///< For Nccl.

  bool operator==(const Topology&) const = default;
};

/// Nodes that the ranks of a topology fill, the last one perhaps in part.
[[nodiscard]] int node_count(const Topology& topology);

/// The system that NCCL's model is asked about: rings and trees of all channels, with the smaller
/// of the bandwidths inside and between nodes, on several nodes of pattern TREE; NVLS switched off.
/// `links`: of equal nodes.
[[nodiscard]] NcclSystem nccl_system(const Topology& topology, const NodeLinks& links);

/// A time from the closed forms and how it was made.
struct AnalyticTime {
  double seconds = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::Auto;  ///< Never Auto when it took time.
  std::optional<NcclChoice> nccl;                             ///< With Nccl.
};

/// Mean |error| with the links of data sheets (NVLink, network adapters) and 3.4 and 14 us for a
/// step inside and between nodes, over 14 published nccl-tests sweeps of 1 .. 540 nodes. Auto 76 %
/// below 1 MiB, 45 % to 128 MiB, 24 % above; Nccl 46, 32 and 23 %; both mostly too fast. The other
/// algorithms count as Auto, since which one ran is not known; where it is, they are better:
/// FlatRing is 7 .. 9 % off on 2 x 8 A100 run with NCCL_ALGO=RING.
[[nodiscard]] double analytic_error(CollectiveAlgorithm algorithm, double bytes);

/// Time of a collective among `ranks` ranks on `nodes` nodes of the topology.
///
/// The slowest link of a ring or tree decides, and every group counts as having it: links inside
/// nodes are as slow as the slowest rank's, those between nodes as the slowest rank's or node's. An
/// algorithm that does not apply is replaced by FlatRing, on one node by Ring: Tree is for
/// all-reduce, broadcast and reduce; Hierarchical for all-reduce, reduce-scatter and all-gather on
/// several nodes with the same number of ranks; RecursiveDoubling, Rabenseifner and, with equal
/// nodes, Nccl for all-reduce. All-to-all is always pairwise, reported as Ring.
/// Raises InputError: a group that does not fit the topology, a bandwidth or nccl_channels missing.
[[nodiscard]] AnalyticTime analytic_time(
    const Topology& topology, CollectiveKind kind, double bytes, int ranks, int nodes);

}  // namespace stepsim

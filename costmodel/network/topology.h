#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/network/collective_cost.h"
#include "costmodel/network/nccl_model.h"
#include "costmodel/network/placement.h"

namespace stepsim {

/// How a collective runs on a topology.
enum class CollectiveAlgorithm {
  Auto,               ///< The fastest of FlatRing, Tree and Hierarchical for these bytes.
  Ring,               ///< One ring, which crosses nodes at a single rank's bandwidth (gloo).
  FlatRing,           ///< Parallel rings that use all adapters of a node (NCCL's Ring).
  Tree,               ///< A double binary tree over nodes, with chains inside (NCCL's Tree).
  Hierarchical,       ///< Two levels of rings: inside the nodes, and between them.
  RecursiveDoubling,  ///< Whole buffers are exchanged; every round counts at the slower link.
  Rabenseifner,       ///< Halving and doubling; every round counts at the slower link.
  Nccl                ///< What NCCL's own tuning model chooses and predicts.
};

[[nodiscard]] std::string_view name_of(CollectiveAlgorithm algorithm);  ///< "flat_ring", …
/// Raises InputError for an unknown name.
[[nodiscard]] CollectiveAlgorithm parse_collective_algorithm(std::string_view name);
[[nodiscard]] std::span<const std::string> collective_algorithm_names();

/// A slow link of a cluster. Exactly one of rank and node is given.
struct SlowLink {
  std::optional<int> rank;  ///< All links of this rank are slow: in its node and to the network.
  std::optional<int> node;  ///< The network adapters of this node are slow.
  double factor = 1;        ///< Bytes take this many times as long; the latency is unchanged.

  bool operator==(const SlowLink&) const = default;
};

/// The links of a cluster whose collectives were never measured.
struct Topology {
  Placement placement;
  Link intra;  ///< One rank's link inside its node, per direction.
  /// One rank's link to other nodes: the latency of a message, and the bandwidth that the rank has
  /// to itself (its own adapter, or its share of the node's). A bandwidth of 0 stands for the
  /// node's divided by its own ranks. Unused on one node.
  Link inter;
  /// Bandwidth per direction of all adapters of a node together; 0 stands for inter's times the
  /// node's ranks. A collective uses the share of the ranks that take part.
  double node_bytes_per_s = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::Auto;
  std::vector<SlowLink> slow_links;
  int nccl_channels = 0;                      ///< Channels of NCCL's rings and trees; Nccl only.
  GpuGeneration gpu = GpuGeneration::Hopper;  ///< Nccl only.

  bool operator==(const Topology&) const = default;
};

/// Returns the system that NCCL's model is asked about. Rings and trees have all channels and the
/// smaller of the bandwidths inside and between nodes; on several nodes the trees have pattern
/// TREE; NVLS is off. The nodes of `links` must hold equal numbers of ranks.
[[nodiscard]] NcclSystem nccl_system(const Topology& topology, const NodeLinks& links);

/// A time from the closed forms and the algorithm that it holds for.
struct AnalyticTime {
  double seconds = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::Auto;  ///< The one used; Auto: no time.
  std::optional<NcclChoice> nccl;                             ///< NCCL's choice; Nccl only.
};

/// Returns the mean |error| of analytic_time() as a fraction.
///
/// It was found on 14 published nccl-tests sweeps of 1 .. 540 nodes, with bandwidths from data
/// sheets (NVLink, network adapters) and latencies of 3.4 us inside and 14 us between nodes. Auto
/// is 76 % off below 1 MiB, 45 % to 128 MiB and 24 % above; Nccl is 46, 32 and 23 % off; both are
/// mostly too fast. The other algorithms are given Auto's error, since the sweeps do not tell which
/// algorithm ran. Where it is known they are better: FlatRing is 7 to 9 % off on 2 x 8 A100 with
/// NCCL_ALGO=RING.
[[nodiscard]] double analytic_error(CollectiveAlgorithm algorithm, double bytes);

/// Returns the time of a collective among `ranks` ranks on `nodes` nodes of the topology: all of
/// its ranks, as they are placed, or a group that lies evenly on some of its nodes.
///
/// The slowest link of a ring or tree sets its pace, and every group is taken to contain it: links
/// inside nodes are as slow as the slowest rank's, those between nodes as the slowest rank's or
/// node's. A node with fewer ranks than others has fewer adapters in use, where every rank has its
/// own, and as much bandwidth as others, where the ranks of a node share adapters.
///
/// An algorithm that does not apply is replaced by FlatRing, on one node by Ring. Tree applies to
/// all-reduce, broadcast and reduce; Hierarchical to all-reduce, reduce-scatter and all-gather on
/// several equally filled nodes; RecursiveDoubling and Rabenseifner to all-reduce; Nccl, on equally
/// filled nodes, to all-reduce, reduce-scatter and all-gather. All-to-all is always pairwise and is
/// reported as Ring. Raises InputError: the group does not fit the topology, or a bandwidth or
/// nccl_channels is missing.
[[nodiscard]] AnalyticTime analytic_time(
    const Topology& topology, CollectiveKind kind, double bytes, int ranks, int nodes);

}  // namespace stepsim

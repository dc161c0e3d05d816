#include "costmodel/network/topology.h"

#include <algorithm>
#include <array>
#include <limits>

#include "costmodel/base/input_error.h"
#include "costmodel/base/row_named.h"

namespace stepsim {
namespace {

const std::array<std::string, 8> kTopologyNames = {"auto",
                                                   "ring",
                                                   "flat_ring",
                                                   "tree",
                                                   "hierarchical",
                                                   "recursive_doubling",
                                                   "rabenseifner",
                                                   "nccl"};

bool has_tree(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::Broadcast ||
         kind == CollectiveKind::Reduce;
}

bool has_two_levels(CollectiveKind kind, const NodeLinks& links) {
  return kind != CollectiveKind::Broadcast && kind != CollectiveKind::Reduce &&
         kind != CollectiveKind::AllToAll && links.is_even();
}

/// Returns the algorithm that runs when `wanted` is asked for.
CollectiveAlgorithm available(CollectiveAlgorithm wanted,
                              CollectiveKind kind,
                              const NodeLinks& links) {
  bool has = true;
  switch (wanted) {
    case CollectiveAlgorithm::Tree:
      has = has_tree(kind);
      break;
    case CollectiveAlgorithm::Hierarchical:
      has = has_two_levels(kind, links) && links.nodes > 1;
      break;
    case CollectiveAlgorithm::RecursiveDoubling:
    case CollectiveAlgorithm::Rabenseifner:
      has = kind == CollectiveKind::AllReduce;
      break;
    case CollectiveAlgorithm::FlatRing:
      has = links.nodes > 1;
      break;
    case CollectiveAlgorithm::Nccl:
      has = has_nccl_model(kind) && links.is_even();
      break;
    case CollectiveAlgorithm::Auto:
    case CollectiveAlgorithm::Ring:
      break;
  }
  if (has) {
    return wanted;
  }
  return links.nodes > 1 ? CollectiveAlgorithm::FlatRing : CollectiveAlgorithm::Ring;
}

/// Returns a link with the largest latency and the smallest bandwidth of the links in use.
Link slowest_link(const NodeLinks& links) {
  if (links.nodes == 1) {
    return links.intra;
  }
  if (links.ranks == links.nodes) {
    return links.inter;
  }
  return {std::max(links.intra.latency_s, links.inter.latency_s),
          std::min(links.intra.bytes_per_s, links.inter.bytes_per_s)};
}

/// Returns the time of a single ring, which crosses nodes at the bandwidth of one rank.
double single_ring_time(CollectiveKind kind, double bytes, NodeLinks links) {
  links.node_bytes_per_s = links.inter.bytes_per_s;
  return flat_ring_time(kind, bytes, links);
}

double time_of(CollectiveAlgorithm algorithm,
               CollectiveKind kind,
               double bytes,
               const NodeLinks& links) {
  switch (algorithm) {
    case CollectiveAlgorithm::Ring:
      return single_ring_time(kind, bytes, links);
    case CollectiveAlgorithm::Tree:
      return node_tree_time(kind, bytes, links);
    case CollectiveAlgorithm::Hierarchical:
      return two_level_time(kind, bytes, links);
    case CollectiveAlgorithm::RecursiveDoubling:
      return recursive_doubling_time(bytes, links.ranks, slowest_link(links));
    case CollectiveAlgorithm::Rabenseifner:
      return rabenseifner_time(bytes, links.ranks, slowest_link(links));
    case CollectiveAlgorithm::Auto:
    case CollectiveAlgorithm::FlatRing:
    case CollectiveAlgorithm::Nccl:
      break;
  }
  return flat_ring_time(kind, bytes, links);
}

AnalyticTime fastest(CollectiveKind kind, double bytes, const NodeLinks& links) {
  AnalyticTime best;
  for (const auto wanted : {CollectiveAlgorithm::FlatRing,
                            CollectiveAlgorithm::Tree,
                            CollectiveAlgorithm::Hierarchical}) {
    const auto algorithm = available(wanted, kind, links);
    const double seconds = time_of(algorithm, kind, bytes, links);
    if (best.algorithm == CollectiveAlgorithm::Auto || seconds < best.seconds) {
      best = {seconds, algorithm, std::nullopt};
    }
  }
  return best;
}

/// Returns the ranks of the group on each of its nodes, and with them the ranks that each of these
/// nodes has in all. A group that is not the whole job lies evenly on the first nodes.
struct GroupNode {
  int used = 0;
  int ranks = 0;
};

std::vector<GroupNode> group_nodes(const Placement& placement, int ranks, int nodes) {
  std::vector<GroupNode> result;
  const bool whole = ranks == placement.ranks() && nodes == placement.nodes();
  const int used = nodes > 0 ? (ranks + nodes - 1) / nodes : 0;
  for (const int on_node : placement.node_ranks()) {
    if (static_cast<int>(result.size()) < nodes) {
      result.push_back({whole ? on_node : std::min(used, on_node), on_node});
    }
  }
  return result;
}

void check_group(const Topology& topology, int ranks, int nodes) {
  const Placement& placement = topology.placement;
  const int per_node = placement.fullest();
  if (nodes < 1 || ranks < nodes || ranks > placement.ranks() || nodes > placement.nodes() ||
      ranks > nodes * per_node) {
    throw InputError("{} ranks on {} nodes do not fit a cluster of {} ranks with {} per node",
                     ranks,
                     nodes,
                     placement.ranks(),
                     per_node);
  }
}

void check_link(const Link& link, const char* bandwidth_key) {
  if (!(link.bytes_per_s > 0)) {
    throw InputError("a link in use has no bandwidth: write {} in [cluster.topology]",
                     bandwidth_key);
  }
}

NodeLinks group_links(const Topology& topology, int ranks, int nodes) {
  double rank_factor = 1;
  double network_factor = 1;
  for (const auto& slow : topology.slow_links) {
    network_factor = std::max(network_factor, slow.factor);
    if (slow.rank) {
      rank_factor = std::max(rank_factor, slow.factor);
    }
  }
  NodeLinks links{ranks, nodes, topology.intra, topology.inter, topology.node_bytes_per_s};
  links.fullest = 0;
  links.node_bytes_per_s = std::numeric_limits<double>::infinity();
  double share = std::numeric_limits<double>::infinity();
  for (const GroupNode& node : group_nodes(topology.placement, ranks, nodes)) {
    // A group without some ranks of a node does not use those ranks' share of the adapters.
    const double of_node = topology.node_bytes_per_s > 0
                               ? topology.node_bytes_per_s * node.used / node.ranks
                               : topology.inter.bytes_per_s * node.used;
    links.node_bytes_per_s = std::min(links.node_bytes_per_s, of_node);
    share = std::min(share, of_node / node.used);
    links.fullest = std::max(links.fullest, node.used);
  }
  if (links.inter.bytes_per_s == 0) {
    links.inter.bytes_per_s = share;
  }
  links.node_bytes_per_s /= network_factor;
  links.inter.bytes_per_s /= network_factor;
  links.intra.bytes_per_s /= rank_factor;
  return links;
}

}  // namespace

std::string_view name_of(CollectiveAlgorithm algorithm) {
  return kTopologyNames.at(static_cast<std::size_t>(algorithm));
}

CollectiveAlgorithm parse_collective_algorithm(std::string_view name) {
  return enum_named<CollectiveAlgorithm>(kTopologyNames, "algorithm", name);
}

std::span<const std::string> collective_algorithm_names() {
  return kTopologyNames;
}

double analytic_error(CollectiveAlgorithm algorithm, double bytes) {
  constexpr double kMiB = 1048576;
  const bool nccl = algorithm == CollectiveAlgorithm::Nccl;
  if (bytes < kMiB) {
    return nccl ? 0.46 : 0.76;
  }
  if (bytes <= 128 * kMiB) {
    return nccl ? 0.32 : 0.45;
  }
  return nccl ? 0.23 : 0.24;
}

NcclSystem nccl_system(const Topology& topology, const NodeLinks& links) {
  NcclSystem system;
  system.ranks = links.ranks;
  system.nodes = links.nodes;
  system.gpu = topology.gpu;
  const double inside =
      links.ranks > links.nodes ? links.intra.bytes_per_s : links.node_bytes_per_s;
  const double slowest = links.nodes > 1 ? std::min(inside, links.node_bytes_per_s) : inside;
  const double per_channel = slowest / topology.nccl_channels * 1e-9;
  system.ring = system.tree = {topology.nccl_channels, per_channel, per_channel};
  system.tree_pattern = links.nodes > 1;
  return system;
}

AnalyticTime analytic_time(
    const Topology& topology, CollectiveKind kind, double bytes, int ranks, int nodes) {
  check_group(topology, ranks, nodes);
  if (ranks == 1) {
    return {};
  }
  const NodeLinks links = group_links(topology, ranks, nodes);
  if (ranks > nodes) {
    check_link(links.intra, "intra_bandwidth");
  }
  if (nodes > 1) {
    check_link(links.inter, "inter_bandwidth");
  }
  if (kind == CollectiveKind::AllToAll) {
    return {pairwise_time(bytes, links), CollectiveAlgorithm::Ring, std::nullopt};
  }
  if (topology.algorithm == CollectiveAlgorithm::Auto) {
    return fastest(kind, bytes, links);
  }
  const auto algorithm = available(topology.algorithm, kind, links);
  if (algorithm != CollectiveAlgorithm::Nccl) {
    return {time_of(algorithm, kind, bytes, links), algorithm, std::nullopt};
  }
  if (topology.nccl_channels < 1) {
    throw InputError(
        "NCCL's model needs the number of channels: write channels in [cluster.topology]");
  }
  const NcclChoice choice = nccl_choice(nccl_system(topology, links), bytes, kind);
  return {choice.us * 1e-6, algorithm, choice};
}

}  // namespace stepsim

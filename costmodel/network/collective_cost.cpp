#include "costmodel/network/collective_cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>

#include "costmodel/base/row_named.h"

namespace stepsim {
namespace {

const std::array<std::string, 6> kCollectiveNames = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"};

bool is_rooted(CollectiveKind kind) {
  return kind == CollectiveKind::Broadcast || kind == CollectiveKind::Reduce;
}

/// All-reduce passes over the ranks twice, all others once.
int passes(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce ? 2 : 1;
}

/// Returns how many doublings reach `count`: log2, rounded up.
int rounds(int count) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(count - 1)));
}

/// Returns the network bandwidth of one rank when all ranks of its node communicate.
double rank_share(const NodeLinks& links) {
  return std::min(links.inter.bytes_per_s, links.node_bytes_per_s / links.most_ranks());
}

/// Returns the time of `steps` messages of `bytes` in all. Nothing takes no time, even on a link
/// without bandwidth.
double seconds(double steps, double bytes, const Link& link) {
  return steps == 0 && bytes == 0 ? 0 : steps * link.latency_s + bytes / link.bytes_per_s;
}

void require(bool holds, const char* what) {
  if (!holds) {
    throw std::logic_error(what);
  }
}

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  return kCollectiveNames.at(static_cast<std::size_t>(kind));
}

CollectiveKind parse_collective_kind(std::string_view name) {
  return enum_named<CollectiveKind>(kCollectiveNames, "collective", name);
}

std::span<const std::string> collective_kind_names() {
  return kCollectiveNames;
}

double bus_factor(CollectiveKind kind, int ranks) {
  if (ranks == 1) {
    return 0;
  }
  const double share = static_cast<double>(ranks - 1) / ranks;
  return is_rooted(kind) ? 1 : passes(kind) * share;
}

double ring_bytes_per_rank(CollectiveKind kind, double bytes, int ranks) {
  return bus_factor(kind, ranks) * bytes;
}

int ring_steps(CollectiveKind kind, int ranks) {
  return passes(kind) * (ranks - 1);
}

double ring_time(CollectiveKind kind, double bytes, int ranks, const Link& link) {
  return seconds(ring_steps(kind, ranks), ring_bytes_per_rank(kind, bytes, ranks), link);
}

double recursive_doubling_time(double bytes, int ranks, const Link& link) {
  return seconds(rounds(ranks), rounds(ranks) * bytes, link);
}

double rabenseifner_time(double bytes, int ranks, const Link& link) {
  return seconds(
      2 * rounds(ranks), ring_bytes_per_rank(CollectiveKind::AllReduce, bytes, ranks), link);
}

double double_tree_time(CollectiveKind kind, double bytes, int ranks, const Link& link) {
  require(is_rooted(kind) || kind == CollectiveKind::AllReduce, "no tree for this collective");
  const int sent = ranks == 1 ? 0 : ranks == 2 ? 1 : passes(kind);
  return seconds(passes(kind) * rounds(ranks), sent * bytes, link);
}

double flat_ring_time(CollectiveKind kind, double bytes, const NodeLinks& links) {
  if (links.nodes == 1) {
    return ring_time(kind, bytes, links.ranks, links.intra);
  }
  const bool has_intra = links.ranks > links.nodes;
  const double slowest = has_intra ? std::min(links.intra.bytes_per_s, links.node_bytes_per_s)
                                   : links.node_bytes_per_s;
  const int crossing = ring_steps(kind, links.nodes);
  const int inside = ring_steps(kind, links.ranks) - crossing;
  return inside * links.intra.latency_s + crossing * links.inter.latency_s +
         ring_bytes_per_rank(kind, bytes, links.ranks) / slowest;
}

double two_level_time(CollectiveKind kind, double bytes, const NodeLinks& links) {
  require(!is_rooted(kind) && kind != CollectiveKind::AllToAll,
          "no two-level ring for this collective");
  require(links.is_even(), "two-level rings need equal nodes");
  const int per_node = links.most_ranks();
  const double inside =
      ring_time(CollectiveKind::ReduceScatter, bytes, per_node, links.intra) * passes(kind);
  const Link between = {links.inter.latency_s, rank_share(links)};
  return inside + ring_time(kind, bytes / per_node, links.nodes, between);
}

double node_tree_time(CollectiveKind kind, double bytes, const NodeLinks& links) {
  if (links.nodes == 1 && links.ranks == 2) {
    return double_tree_time(kind, bytes, 2, links.intra);
  }
  const Link between = {0, links.node_bytes_per_s};
  const double network = double_tree_time(kind, bytes, links.nodes, between);
  const int per_node = links.most_ranks();
  const double inside = per_node == 1 ? 0 : passes(kind) * bytes / links.intra.bytes_per_s;
  const double latency =
      (per_node - 1) * links.intra.latency_s + rounds(links.nodes) * links.inter.latency_s;
  return passes(kind) * latency + std::max(inside, network);
}

double pairwise_time(double bytes, const NodeLinks& links) {
  const int per_node = links.most_ranks();
  const double part = bytes / links.ranks;
  const int inside = per_node - 1;
  const int outside = links.ranks - per_node;
  const double staying = inside == 0 ? 0 : inside * part / links.intra.bytes_per_s;
  const double leaving = outside == 0 ? 0 : outside * part / rank_share(links);
  return inside * links.intra.latency_s + outside * links.inter.latency_s +
         std::max(staying, leaving);
}

}  // namespace stepsim

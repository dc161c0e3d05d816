#include "costmodel/network/fitted_links.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

/// Bytes per second that a ring over these ranks moves.
double ring_rate(const LinkSpeeds& speeds, int ranks, int nodes) {
  if (nodes == 1) {
    return speeds.intra_bytes_per_s;
  }
  constexpr double kMany = 3;  // From so many nodes on, a node's two neighbours differ.
  const double doublings = std::log2(std::max(1.0, nodes / kMany));
  const double crowding = std::log2(static_cast<double>(ranks) / nodes);
  return speeds.inter_bytes_per_s * (nodes == 2 ? speeds.two_nodes : 1) *
         std::exp(-speeds.per_doubling_of_nodes * doublings -
                  speeds.per_doubling_of_ranks * crowding);
}

/// What part of a ring's rate a tree has for this size.
double rate_of_tree(double bytes) {
  // NCCL's corrections, from 64 bytes on for each doubling; beyond them a tree is not corrected.
  constexpr std::array<double, 23> kOfSize = {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8,
                                              0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6,
                                              0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9};
  constexpr double kOfRing = 0.92;
  constexpr double kFirst = 64;
  const double doublings = std::floor(std::log2(std::max(bytes / kFirst, 1.0)));
  const auto place = static_cast<std::size_t>(doublings);
  return kOfRing * (place < kOfSize.size() ? kOfSize[place] : 1);
}

/// What an all-reduce through a tree over the nodes sends, its steps counted as bytes.
double tree_bytes(double half, double bytes, int ranks, int nodes) {
  const double chain = static_cast<double>(ranks) / nodes - 1;
  const double steps = 2 * (chain + std::ceil(std::log2(static_cast<double>(nodes))));
  return steps * half + 2 * bytes / rate_of_tree(bytes);
}

}  // namespace

double fitted_collective_time(
    const LinkSpeeds& speeds, CollectiveKind kind, double bytes, int ranks, int nodes) {
  if (ranks == 1) {
    return 0;
  }
  const double half = nodes == 1 ? speeds.intra_half_bytes : speeds.inter_half_bytes;
  const double ring = ring_steps(kind, ranks) * half + ring_bytes_per_rank(kind, bytes, ranks);
  const bool by_tree = kind == CollectiveKind::AllReduce && nodes > 1;
  return (by_tree ? std::min(ring, tree_bytes(half, bytes, ranks, nodes)) : ring) /
         ring_rate(speeds, ranks, nodes);
}

std::vector<double> fitted_collective_ratios(
    const FittedLinks& links, CollectiveKind kind, double bytes, int ranks, int nodes) {
  const double fitted = fitted_collective_time(links.fitted, kind, bytes, ranks, nodes);
  return mapped(links.draws, [&](const LinkSpeeds& draw) {
    return fitted > 0 ? fitted_collective_time(draw, kind, bytes, ranks, nodes) / fitted : 1;
  });
}

}  // namespace stepsim

#include "costmodel/network/fitted_links.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

double fitted_ring_time(
    const LinkSpeeds& speeds, CollectiveKind kind, double bytes, int ranks, int nodes) {
  if (ranks == 1) {
    return 0;
  }
  const double half = nodes == 1 ? speeds.intra_half_bytes : speeds.inter_half_bytes;
  return (ring_steps(kind, ranks) * half + ring_bytes_per_rank(kind, bytes, ranks)) /
         ring_rate(speeds, ranks, nodes);
}

std::vector<double> fitted_ring_ratios(
    const FittedLinks& links, CollectiveKind kind, double bytes, int ranks, int nodes) {
  const double fitted = fitted_ring_time(links.fitted, kind, bytes, ranks, nodes);
  return mapped(links.draws, [&](const LinkSpeeds& draw) {
    return fitted > 0 ? fitted_ring_time(draw, kind, bytes, ranks, nodes) / fitted : 1;
  });
}

}  // namespace stepsim

#pragma once

#include <string>
#include <vector>

#include "costmodel/network/collective_cost.h"

namespace stepsim {

/// The links of a cluster as step times show them: how fast a ring moves its bytes inside one node,
/// between two nodes, and between more.
///
/// A ring of k ranks on n nodes takes (steps * half + bytes) / rate, with the steps and bytes of
/// ring_steps() and ring_bytes_per_rank(). Inside a node the rate is `intra_bytes_per_s`. Between
/// nodes it is `inter_bytes_per_s` for three nodes of one rank each, times `two_nodes` where there
/// are only two of them (each then sends to the node that it receives from), times
/// exp(-`per_doubling_of_nodes`) for each doubling of the nodes from three on, and times
/// exp(-`per_doubling_of_ranks`) for each doubling of a node's mean number of ranks.
struct LinkSpeeds {
  double intra_bytes_per_s = 0;  ///< More than 0.
  double intra_half_bytes = 0;   ///< The bytes that the latency of a ring's step is worth.
  double inter_bytes_per_s = 0;  ///< More than 0.
  double inter_half_bytes = 0;
  double two_nodes = 1;  ///< More than 0.
  double per_doubling_of_nodes = 0;
  double per_doubling_of_ranks = 0;

  bool operator==(const LinkSpeeds&) const = default;
};

/// Returns the seconds of a collective over `ranks` ranks on `nodes` nodes; 0 for one rank. It goes
/// around the ring, or, an all-reduce between nodes, through NCCL's tree where that is faster: a
/// chain inside each node and a binary tree over the nodes, up and down again, whose
/// 2 (ranks / nodes - 1 + log2(nodes)) steps cost as much as the ring's, and which moves 2 `bytes`
/// at 0.92 of its rate and less for middle sizes. Source: NCCL's tuning model, src/graph/tuning.cc,
/// protocol Simple. Thousands of ranks make the difference: a ring's steps grow with them.
[[nodiscard]] double fitted_collective_time(
    const LinkSpeeds& speeds, CollectiveKind kind, double bytes, int ranks, int nodes);

/// Link speeds with what else the measured step times allow.
struct FittedLinks {
  LinkSpeeds fitted;
  std::vector<LinkSpeeds> draws;  ///< Other fits that are as good; they state the uncertainty.
  /// Standard deviation, as a fraction, by which a run's collectives are faster or slower than
  /// those of another run on the same nodes.
  double run_error = 0;
  int ranks = 1;  ///< The most ranks that were measured.
  int nodes = 1;  ///< The most nodes that were measured.

  bool operator==(const FittedLinks&) const = default;
};

/// Returns, by draw, the time of a collective under that draw's speeds over its time under the
/// fitted ones.
[[nodiscard]] std::vector<double> fitted_collective_ratios(
    const FittedLinks& links, CollectiveKind kind, double bytes, int ranks, int nodes);

}  // namespace stepsim

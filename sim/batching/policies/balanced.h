#pragma once

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

// Policies that deal out each global batch of ranks * batch_size samples anew, any sample to any
// rank. A last batch of fewer samples than ranks is filled with the first samples of the epoch;
// drop_last leaves it out unless it is full.

namespace stepsim {

/// Each rank gets a contiguous part of the sorted samples; the highest padded cost of a part is the
/// least possible (repartition_padded).
[[nodiscard]] EpochBatches batch_rebalance_epoch(const PolicyParameters& parameters,
                                                 const PolicyInput& input);

/// Deals the samples by karmarkar_karp on their workloads, in equal counts wherever the ranks
/// divide the batch.
[[nodiscard]] EpochBatches karmarkar_karp_epoch(const PolicyParameters& parameters,
                                                const PolicyInput& input);

/// Deals the samples by longest_processing_time on their workloads.
[[nodiscard]] EpochBatches lpt_epoch(const PolicyParameters& parameters, const PolicyInput& input);

/// The samples, ascending in length, form groups of one sample a rank, and the groups are shuffled.
/// Rank r takes the r-th sample of each group, batch_size of them a step.
/// Source: Bagua and ONNX Runtime, LoadBalancingDistributedSampler (random_level 0).
[[nodiscard]] EpochBatches load_balancing_epoch(const PolicyParameters& parameters,
                                                const PolicyInput& input);

/// ordered_partition of each global batch; the costliest micro-batches are halved until ranks
/// divide their number, karmarkar_karp deals them out, and every rank runs its costliest first.
/// Each round of micro-batches is a step. A global batch of fewer samples than ranks is filled as
/// above. Source: DynaPipe.
[[nodiscard]] EpochBatches dynapipe_epoch(const PolicyParameters& parameters,
                                          const PolicyInput& input);

}  // namespace stepsim

#pragma once

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

// Policies that deal each global batch of ranks * batch_size samples out anew: any sample to any
// rank. A last batch of fewer samples than ranks is filled with the first samples of the epoch;
// drop_last leaves it out unless it is full.

namespace stepsim {

/// Contiguous parts of the sorted samples with the least highest padded cost (repartition_padded).
[[nodiscard]] EpochBatches batch_rebalance_epoch(const PolicyParameters& parameters,
                                                 const PolicyInput& input);

/// karmarkar_karp on the samples' workloads, equal counts wherever ranks divide the batch.
[[nodiscard]] EpochBatches karmarkar_karp_epoch(const PolicyParameters& parameters,
                                                const PolicyInput& input);

/// longest_processing_time on the samples' workloads.
[[nodiscard]] EpochBatches lpt_epoch(const PolicyParameters& parameters, const PolicyInput& input);

/// Samples ascending in length in groups of one sample a rank, groups shuffled; rank r takes the
/// r-th of each group, batch_size of them a step.
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

#pragma once

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

// Policies in which every rank forms batches of its own share of the samples.

namespace stepsim {

/// Sampler order, chunks of batch_size: PyTorch's default.
[[nodiscard]] EpochBatches fixed_epoch(const PolicyParameters& parameters,
                                       const PolicyInput& input);

/// Length bucketing by a sort inside each rank, in chunks of batch_size, as in the token-skew lab.
///
/// Ranks with equal numbers of batches draw the same second shuffle, so they stay aligned in
/// length. Without the sampler's shuffle the batches stay in ascending order.
[[nodiscard]] EpochBatches bucketed_epoch(const PolicyParameters& parameters,
                                          const PolicyInput& input);

/// As many samples as fit into max_tokens padded tokens, in ascending length, as in the token-skew
/// lab. A sample longer than the budget forms a batch alone.
///
/// Ranks have different numbers of batches, so their second shuffles differ: only the budget keeps
/// them similar. drop_last has no further effect here: a batch has no set size to fall short of.
[[nodiscard]] EpochBatches token_budget_epoch(const PolicyParameters& parameters,
                                              const PolicyInput& input);

/// Length bucketing by a sort inside each rank, in chunks of batch_size. The batches stay in
/// ascending length, so that all ranks walk the length axis together, or every rank shuffles its
/// own (order = "independent_shuffles", Python's generator of seed + epoch * ranks + rank) and they
/// part.
[[nodiscard]] EpochBatches local_sort_epoch(const PolicyParameters& parameters,
                                            const PolicyInput& input);

/// As many samples of a rank's share as fit into max_tokens padded tokens, in ascending length or
/// in the sampler's order, never shuffled again.
[[nodiscard]] EpochBatches local_token_budget_epoch(const PolicyParameters& parameters,
                                                    const PolicyInput& input);

}  // namespace stepsim

#pragma once

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

// Policies in which every rank forms batches of its own share of the samples.

namespace stepsim {

/// Each rank cuts its share, in the order of the sampler, into chunks of batch_size. This is
/// PyTorch's default.
[[nodiscard]] EpochBatches fixed_epoch(const PolicyParameters& parameters,
                                       const PolicyInput& input);

/// Each rank sorts its share by length and cuts it into chunks of batch_size, as the token-skew lab
/// does.
///
/// Ranks with equal numbers of batches draw the same second shuffle, so they stay aligned in
/// length. Without the sampler's shuffle the batches stay in ascending order.
[[nodiscard]] EpochBatches bucketed_epoch(const PolicyParameters& parameters,
                                          const PolicyInput& input);

/// Each rank fills batches up to max_tokens padded tokens, in ascending length, as the token-skew
/// lab does. A sample longer than the budget forms a batch alone.
///
/// Ranks have different numbers of batches, so their second shuffles differ: only the budget keeps
/// them similar. drop_last has no further effect here: a batch has no set size to fall short of.
[[nodiscard]] EpochBatches token_budget_epoch(const PolicyParameters& parameters,
                                              const PolicyInput& input);

/// Each rank sorts its share by length and cuts it into chunks of batch_size. The batches stay in
/// ascending length, so that all ranks walk the length axis together. With order =
/// "independent_shuffles" every rank shuffles its own (Python's generator of seed + epoch * ranks +
/// rank), and the ranks part.
[[nodiscard]] EpochBatches local_sort_epoch(const PolicyParameters& parameters,
                                            const PolicyInput& input);

/// Each rank fills batches up to max_tokens padded tokens from its share, in ascending length or in
/// the order of the sampler, and never shuffles them again.
[[nodiscard]] EpochBatches local_token_budget_epoch(const PolicyParameters& parameters,
                                                    const PolicyInput& input);

}  // namespace stepsim

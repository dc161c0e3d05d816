#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sim/batching/policy.h"

// The functions behind the rows of policy_table(), and what several of them share.

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

/// [rank] the sampler's shares of the data set.
[[nodiscard]] std::vector<RankOrder> rank_shares(const PolicyInput& input);

/// `samples` in their order, `batch_size` at a time; the last batch may be smaller unless
/// drop_last leaves it out.
[[nodiscard]] Batches chunk(std::span<const std::int64_t> samples,
                            std::int64_t batch_size,
                            bool drop_last);

/// Ascending length; equal lengths keep their order.
void sort_by_length(std::vector<std::int64_t>& samples, std::span<const std::int64_t> lengths);

/// Descending length; equal lengths keep their order.
void sort_descending(std::vector<std::int64_t>& samples, std::span<const std::int64_t> lengths);

/// The order of the whole data set that the sampler deals out.
[[nodiscard]] std::vector<std::int64_t> sample_order(const PolicyInput& input);

/// torch.randperm(seed + epoch) of the whole data set; 0, 1, … without the sampler's shuffle.
[[nodiscard]] std::vector<std::int64_t> torch_order(const PolicyInput& input);

/// Closes a batch before the sample that would take samples * longest above `max_tokens`; a sample
/// above it runs alone. With max_batch_size, also before the sample beyond it.
[[nodiscard]] Batches fill_padded(std::span<const std::int64_t> samples,
                                  std::span<const std::int64_t> lengths,
                                  std::int64_t max_tokens,
                                  std::optional<std::int64_t> max_batch_size = {});

/// `length` rounded up to a multiple, as a collator with pad_to_multiple_of pads.
[[nodiscard]] std::int64_t padded_to_multiple(std::int64_t length, std::int64_t multiple);

}  // namespace stepsim

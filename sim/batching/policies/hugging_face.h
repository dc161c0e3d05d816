#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"
#include "sim/batching/sort_window.h"

namespace stepsim {

/// The batches of a mega-batch where the user gives none: a quarter of the data set, but at least 1
/// and at most 50.
[[nodiscard]] std::int64_t usual_mega_batch_mult(std::int64_t samples, std::int64_t batch_size);

/// The mega-batch of a data set of this many samples.
[[nodiscard]] SortWindow mega_batch(const PolicyParameters& parameters, std::int64_t samples);

/// get_length_grouped_indices: the permutation in mega-batches of mega_batch_mult * batch_size
/// samples, each sorted descending; the longest sample of all changes places with the first.
///
/// Args:
///     mega_batch_mult: None: usual_mega_batch_mult.
/// Source: huggingface/transformers, trainer_pt_utils.py.
[[nodiscard]] std::vector<std::int64_t> length_grouped_indices(
    std::span<const std::int64_t> permutation,
    std::span<const std::int64_t> lengths,
    std::int64_t batch_size,
    std::optional<std::int64_t> mega_batch_mult);

/// The Trainer's group_by_length: length-grouped order of torch.randperm(seed + epoch), chunks of
/// batch_size, dealt out by accelerate (even_batches). group_batch_size is the size that
/// mega-batches are made of (the Trainer's batch_size * gradient accumulation).
[[nodiscard]] EpochBatches hf_group_by_length_epoch(const PolicyParameters& parameters,
                                                    const PolicyInput& input);

/// [rank] the samples of the legacy DistributedLengthGroupedSampler: the length-grouped order,
/// padded with its own head (drop_last: cut), rank r takes samples r, r + ranks, ….
[[nodiscard]] std::vector<std::vector<std::int64_t>> length_grouped_shares(
    std::vector<std::int64_t> grouped, int ranks, bool drop_last);

/// The shares of length_grouped_shares() in chunks of batch_size.
[[nodiscard]] EpochBatches hf_length_grouped_sampler_epoch(const PolicyParameters& parameters,
                                                           const PolicyInput& input);

}  // namespace stepsim

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

namespace stepsim {

/// The limits of a batch that is checked after each sample, and gives samples back when it has
/// become too large.
struct HoldBack {
  std::int64_t batch_size = 1;  ///< SampleIds, or with by_tokens samples * longest.
  bool by_tokens = false;
  std::int64_t multiple = 1;  ///< Batches that gave samples back divide by it.
};

/// A batch that reaches batch_size exactly is emitted; one that exceeds it is emitted without its
/// last sample, or without as many as the multiple asks for, which begin the next batch. If none
/// would be left, the batch is filled on and may exceed batch_size.
///
/// Sources: OpenNMT-py, dynamic_iterator.py (batch_iter); torchtext, batch() (multiple 1).
[[nodiscard]] Batches fill_holding_back(std::span<const std::int64_t> order,
                                        std::span<const std::int64_t> lengths,
                                        const HoldBack& options);

/// Each rank: its share in the sampler's order, cut into buckets of bucket_size samples, sorted
/// ascending, filled, the bucket's batches shuffled by the rank's own generator.
/// Source: OpenNMT-py, DynamicDatasetIter.
[[nodiscard]] EpochBatches opennmt_epoch(const PolicyParameters& parameters,
                                         const PolicyInput& input);

/// Each rank: its share in the sampler's order, cut into pools of 100 batches, sorted ascending
/// inside the pool only with sort_within_batch, filled, the pool's batches shuffled as
/// random.sample does. Source: torchtext legacy, pool().
[[nodiscard]] EpochBatches torchtext_epoch(const PolicyParameters& parameters,
                                           const PolicyInput& input);

/// batch_size where batch_type = "tokens": the token budget of both.
[[nodiscard]] std::optional<double> batch_size_in_tokens(const PolicyParameters& parameters);

/// torchtext's pool() without the shuffle of its batches: [pool][batch].
[[nodiscard]] std::vector<Batches> torchtext_pools(std::span<const std::int64_t> order,
                                                   std::span<const std::int64_t> lengths,
                                                   const HoldBack& options,
                                                   bool sort_within_batch);

}  // namespace stepsim

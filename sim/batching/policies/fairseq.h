#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

namespace stepsim {

/// fairseq's --max-tokens, --max-sentences (--batch-size) and --required-batch-size-multiple.
struct FairseqBatching {
  std::optional<std::int64_t> max_tokens;     ///< SampleIds * longest.
  std::optional<std::int64_t> max_sentences;  ///< SampleIds.
  std::int64_t multiple = 8;                  ///< Batches of at least so many samples divide by it.
};

/// batch_by_size: one pass over `order`, without any sorting; the last batch may still be ragged.
/// No sample may be longer than max_tokens. Source: fairseq, data_utils_fast.pyx.
[[nodiscard]] Batches fairseq_batch_by_size(std::span<const std::int64_t> order,
                                            std::span<const std::int64_t> lengths,
                                            const FairseqBatching& options);

/// Drops the last batch when `multiple` does not divide it. In ascending order it holds the longest
/// samples. Source: fairseq, data_utils.py.
void drop_ragged_batch(Batches& batches, std::int64_t multiple);

/// batch_fixed_shapes: a batch grows while some shape (samples, length) holds it.
///
/// After a batch is closed the first sample of the next one does not count with its length.
/// Source: fairseq, data_utils_fast.pyx.
[[nodiscard]] Batches fairseq_fixed_shapes(
    std::span<const std::int64_t> order,
    std::span<const std::int64_t> lengths,
    std::span<const std::pair<std::int64_t, std::int64_t>> shapes);

/// SampleIds ascending in length, ties in numpy's random order; batch_by_size; batches shuffled by
/// seed + epoch (the first epoch is 1), alone or in groups of ranks; ShardedIterator. With target
/// lengths, samples of equal length ascend in theirs, and a sample is as long as its longer one.
///
/// Only shuffle and seed of the sampler count; drop_last leaves out batches that do not divide over
/// the ranks. Raises InputError: a sample longer than max_tokens.
[[nodiscard]] EpochBatches fairseq_epoch(const PolicyParameters& parameters,
                                         const PolicyInput& input);

/// Raises InputError unless max_tokens or max_sentences is there.
void check_fairseq(const PolicyParameters& parameters);

/// Plans like fairseq_epoch, but by batch_fixed_shapes. Raises InputError: a sample is longer than
/// every shape.
[[nodiscard]] EpochBatches fairseq_fixed_shapes_epoch(const PolicyParameters& parameters,
                                                      const PolicyInput& input);

/// Raises InputError unless there is one shape at least, of as many batch sizes as lengths.
void check_fairseq_fixed_shapes(const PolicyParameters& parameters);

}  // namespace stepsim

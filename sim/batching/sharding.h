#pragma once

#include <cstdint>

#include "sim/batching/epoch_plan.h"

// The ways in which libraries deal out a list of batches, which every rank knows, to the ranks.

namespace stepsim {

/// accelerate's BatchSamplerShard; the defaults are those of the Hugging Face Trainer.
struct AccelerateShard {
  std::int64_t batch_size = 1;  ///< SampleIds of a full batch (split_batches: of all ranks).
  bool drop_last = false;
  bool split_batches = false;  ///< Every batch is cut into one part a rank.
  bool even_batches = true;  ///< A short or missing batch is filled with the epoch's first samples.
};

/// Rank r takes batches r, r + ranks, …, or its part of every batch.
///
/// The last round of batches is complete when its last batch is full; else it is left out
/// (drop_last), kept as it is (not even_batches: ranks may differ in their number of batches), or
/// filled up from the first batches of the epoch, going on from rank to rank.
/// Raises InputError: split_batches with a batch_size that the ranks do not divide.
/// Source: huggingface/accelerate, data_loader.py.
[[nodiscard]] EpochBatches accelerate_shards(const Batches& batches,
                                             int ranks,
                                             const AccelerateShard& options);

/// Shuffles the batches of one epoch with numpy's legacy generator. `grouped` shuffles groups of
/// `ranks` consecutive batches instead, and leaves out the remainder.
/// Source: fairseq, EpochBatchIterator.
[[nodiscard]] Batches fairseq_shuffled(Batches batches,
                                       int ranks,
                                       std::uint64_t seed,
                                       bool grouped);

/// Rank r takes batches r, r + ranks, …; ranks that come out short get an empty batch, for which
/// fairseq runs a dummy batch that counts nothing. Source: fairseq, ShardedIterator.
[[nodiscard]] EpochBatches fairseq_shards(const Batches& batches, int ranks);

/// Every round deals `ranks` consecutive batches out. The samples of an incomplete last round are
/// spread again over all ranks, repeated from their first on while there are fewer than ranks, or
/// left out with drop_last. Source: lhotse, CutSampler.
[[nodiscard]] EpochBatches lhotse_shards(const Batches& batches, int ranks, bool drop_last);

/// Rank r takes batches r, r + ranks, … of the longest head that the ranks divide.
[[nodiscard]] EpochBatches truncated_shards(const Batches& batches, int ranks);

/// Rank r takes the r-th of `ranks` equal parts of every batch.
/// Raises InputError: a batch that the ranks do not divide.
[[nodiscard]] EpochBatches contiguous_parts(const Batches& batches, int ranks);

/// Rank r takes samples r, r + ranks, … of every batch.
/// Raises InputError: a batch of fewer samples than ranks.
[[nodiscard]] EpochBatches strided_samples(const Batches& batches, int ranks);

}  // namespace stepsim

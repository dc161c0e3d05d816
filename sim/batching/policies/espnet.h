#pragma once

#include <cstdint>
#include <span>

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

namespace stepsim {

/// ESPnet's batch type numel.
struct EspnetNumel {
  std::int64_t batch_bins = 1;
  std::int64_t feature_dim = 1;     ///< Elements of one frame.
  std::int64_t min_batch_size = 1;  ///< Batches never close below it.
  bool padding = true;              ///< Bins are samples * longest * feature_dim, else their sum.
  bool drop_last = false;
  bool descending_in_batch = true;  ///< sort_in_batch
  bool descending_batches = false;  ///< sort_batch
};

/// Batches of samples ascending in length; a batch closes *behind* the sample that takes it above
/// batch_bins. A last batch below min_batch_size is spread over the others, from the back.
///
/// Source: espnet2, num_elements_batch_sampler.py.
[[nodiscard]] Batches espnet_numel(std::span<const std::int64_t> lengths,
                                   const EspnetNumel& options);

/// Forms numel batches of all ranks together, shuffled by numpy with seed + epoch (the first epoch
/// is 1); rank r takes samples r, r + ranks, … of every batch, so batches have at least `ranks`
/// samples.
///
/// Only shuffle, seed and drop_last of the sampler count.
/// Raises InputError: fewer samples than ranks.
/// Source: espnet2, abs_task.py and sequence_iter_factory.py.
[[nodiscard]] EpochBatches espnet_epoch(const PolicyParameters& parameters,
                                        const PolicyInput& input);

}  // namespace stepsim

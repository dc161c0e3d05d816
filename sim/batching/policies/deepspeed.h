#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

namespace stepsim {

/// DeepSpeed's variable batch size.
struct DeepspeedBatching {
  std::int64_t max_tokens = 1;            ///< The limit of the *sum* of a micro-batch's lengths.
  std::int64_t effective_batch_size = 1;  ///< Micro-batches of one optimizer step, over all ranks.
  bool same_size = false;  ///< required_microbatches_of_same_size: those of one step are alike.
  std::int64_t min_batch_size = 1;
  std::optional<std::int64_t> max_batch_size;
};

/// batch_by_seqlens: from where the last micro-batch ended, the farthest end that keeps all limits,
/// but never the end of the data: the last sample is never placed. SampleIds above max_tokens are
/// left out, and so are micro-batches that do not divide by effective_batch_size.
///
/// Source: DeepSpeed, variable_batch_size_and_lr.py.
[[nodiscard]] Batches deepspeed_batch_by_seqlens(std::span<const std::int64_t> order,
                                                 std::span<const std::int64_t> lengths,
                                                 const DeepspeedBatching& options);

/// [position] The samples, ascending by (length, id).
[[nodiscard]] std::vector<std::int64_t> deepspeed_seqlen_order(
    std::span<const std::int64_t> lengths);

/// Micro-batches in the order of the data ("dataloader"), of Python's shuffle with seed ("random")
/// or of length ("seqlen"), planned once; rank r takes micro-batches r, r + ranks, ….
///
/// Only the seed of the sampler counts.
/// Raises InputError: ranks that do not divide effective_batch_size.
[[nodiscard]] EpochBatches deepspeed_epoch(const PolicyParameters& parameters,
                                           const PolicyInput& input);

}  // namespace stepsim

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

namespace stepsim {

/// The longest lengths, first and second, of the samples in a bucket.
struct NemoBin {
  std::int64_t duration = 0;
  std::int64_t tokens = 0;
};

/// The bucket of a sample of these lengths; nothing when it fits none.
///
/// Strict: of the bins with the least sufficient duration the first with room for the tokens, and
/// no others. Else the first bin that holds both, at the cost of padding.
/// Args:
///     bins: Ascending by duration, then by tokens.
/// Source: NVIDIA/NeMo, lhotse/sampling.py (bucketing_2d_strict_mode).
[[nodiscard]] std::optional<std::size_t> nemo_bucket(std::span<const NemoBin> bins,
                                                     std::int64_t duration,
                                                     std::int64_t tokens,
                                                     bool strict);

/// NeMo's fixed buckets: bucket_duration_bins are the upper ends (included), with bucket_token_bins
/// of both lengths. Each has its own bucket_batch_size, as OOMptimizer finds them, or as many
/// samples of the bin's own lengths as fit into max_tokens. SampleIds that fit no bucket are left
/// out. Source: NVIDIA/NeMo, FixedBucketBatchSizeConstraint, FixedBucketBatchSizeConstraint2D.
[[nodiscard]] EpochBatches nemo_bucketing_epoch(const PolicyParameters& parameters,
                                                const PolicyInput& input);

/// Raises InputError: bins that do not ascend, not one batch size a bin, both or none of
/// bucket_batch_size and max_tokens, or a bin of which max_tokens holds no sample.
void check_nemo_bucketing(const PolicyParameters& parameters);

}  // namespace stepsim

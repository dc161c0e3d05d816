#pragma once

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"
#include "sim/batching/sort_window.h"

namespace stepsim {

/// NeMo Automodel's DynamicTokenBatchSampler: torch.randperm(seed + epoch), sorted descending
/// inside windows of sort_window samples, filled up to max_tokens padded tokens
/// (max_tokens_per_batch) and max_batch_size samples; rank r takes batches r, r + ranks, … of a
/// list cut to full rounds.
///
/// Every rank plans the same list, so no collective is needed. A sample above max_tokens runs
/// alone. Source: NVIDIA-NeMo/Automodel, pull request 3473.
[[nodiscard]] EpochBatches automodel_epoch(const PolicyParameters& parameters,
                                           const PolicyInput& input);

/// The windows that automodel_epoch() sorts, whatever the number of samples is.
[[nodiscard]] SortWindow automodel_window(const PolicyParameters& parameters, std::int64_t samples);

}  // namespace stepsim

#pragma once

#include <memory>
#include <span>
#include <vector>

#include "sim/batching/policy.h"

namespace stepsim {

/// Chunks of `batch_size` in the rank's order.
[[nodiscard]] std::unique_ptr<BatchingPolicy> make_fixed(const PolicySpec& spec);

/// The rank's samples sorted by length, in chunks of `batch_size`, chunks shuffled.
[[nodiscard]] std::unique_ptr<BatchingPolicy> make_bucketed(const PolicySpec& spec);

/// The rank's samples sorted by length, filled up to `max_tokens` padded tokens, batches shuffled.
[[nodiscard]] std::unique_ptr<BatchingPolicy> make_token_budget(const PolicySpec& spec);

using Batches = std::vector<std::vector<std::int64_t>>;

/// `samples` in their order, `batch_size` at a time; the last batch may be smaller unless
/// drop_last leaves it out.
[[nodiscard]] Batches chunk(std::span<const std::int64_t> samples,
                            std::int64_t batch_size,
                            bool drop_last);

/// Ascending length; equal lengths keep their order.
void sort_by_length(std::vector<std::int64_t>& samples, std::span<const std::int64_t> lengths);

}  // namespace stepsim

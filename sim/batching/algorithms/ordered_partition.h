#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "sim/batching/algorithms/partition.h"

namespace stepsim {

/// How micro-batches of consecutive lengths are chosen.
struct OrderedPartition {
  std::int64_t overhead = 0;  ///< Cost of a micro-batch beside its padded tokens, in tokens.
  std::optional<std::int64_t> max_tokens;  ///< Padded tokens; a sample alone may exceed it.
  std::int64_t stages = 1;                 ///< The stages of the pipeline that runs them.
  std::int64_t replicas = 1;               ///< Ranks, or pipelines, that share them.
};

/// Micro-batches of the ascending lengths that cost overhead + samples * longest each: least
/// (stages - 1) * highest + sum / replicas, the time of pipelines in parallel.
///
/// A dynamic programme over the cuts for every candidate of the highest cost; at most 64 of them,
/// evenly spread over the possible ones, are tried, so above 64 the result can be off by their
/// spacing. With one stage the highest cost does not count, and the result is exact. O(64 n^2).
/// Raises InputError: no length, or parameters below 1 (overhead: below 0).
/// Source: Jiang et al., "DynaPipe" (2023).
[[nodiscard]] Parts ordered_partition(std::span<const std::int64_t> lengths,
                                      const OrderedPartition& options);

}  // namespace stepsim

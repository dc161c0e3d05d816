#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/batching/algorithms/partition.h"

namespace stepsim {

// Published rules of batching that no policy uses; the published examples check their parts.

/// [rank][micro-batch] sample ids.
using RankMicroBatches = std::vector<std::vector<std::vector<std::int64_t>>>;

/// The sizes of a decoder, from which its operations per sample follow.
struct DecoderSizes {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t query_groups = 0;
  std::int64_t head_size = 0;
  std::int64_t feed_forward = 0;
  std::int64_t layers = 0;
  std::int64_t vocabulary = 0;
};

/// Operations of a decoder: layers (2 s h n k + 4 s h q k + 2 n k s^2 + 2 s h^2 + 6 s h f) + 2 s h
/// vocabulary for a sample of s tokens. Source: slime, utils/flops_utils.py.
[[nodiscard]] std::int64_t decoder_operations(const DecoderSizes& sizes, std::int64_t tokens);

struct SlimeSchedule {
  int ranks = 1;
  /// With it, micro-batches are filled first-fit up to so many tokens. Without it, each holds
  /// `micro_batch_size` samples.
  std::optional<std::int64_t> max_tokens;
  std::int64_t micro_batch_size = 1;
  /// With it, Karmarkar-Karp balances the operations over ranks of equal counts. Without it,
  /// micro-batch i goes to rank i modulo ranks.
  std::optional<DecoderSizes> balance;
};

/// Micro-batches of samples 0, 1, …, equally many on every rank: the fullest micro-batch of several
/// samples is halved (longest sample first, each to the lighter half) until ranks divide their
/// number.
/// Raises InputError: fixed micro-batches that ranks do not divide; too few samples to halve.
/// Source: slime, build_dp_schedule.
[[nodiscard]] RankMicroBatches slime_schedule(std::span<const std::int64_t> lengths,
                                              const SlimeSchedule& options);

/// Groups of `size` samples ascending in length; a tail below it is dropped.
[[nodiscard]] std::vector<std::vector<std::int64_t>> sorted_groups(
    std::span<const std::int64_t> lengths, std::int64_t size);

/// Offsets of documents packed into one row for attention kernels: 0, the end of each document,
/// then the total repeated to `slots` entries in all (none: no padding). Raises InputError: more
/// documents than slots hold.
[[nodiscard]] std::vector<std::int64_t> cumulative_lengths(std::span<const std::int64_t> lengths,
                                                           std::optional<std::int64_t> slots = {});

/// The next multiple of `step` from `documents` on: slots that are kept for them, since a number
/// fixed for compilation costs time for every slot not used. Source: modded-nanogpt, train_gpt.py.
[[nodiscard]] std::int64_t document_slots(std::int64_t documents, std::int64_t step);

/// Whether first-fit over descending lengths needs at most `packs` packs. Source: axolotl.
[[nodiscard]] bool first_fit_decreasing_fits(std::span<const std::int64_t> lengths,
                                             std::int64_t capacity,
                                             std::int64_t packs);

/// Consecutive chunks of the descending values with the least maximum sum; of equal solutions the
/// one whose chunks end earliest, from the back. O(parts n^2). Raises InputError: parts < 1 or
/// above the values. Source: FlexSP, chunk_sort_consec.
[[nodiscard]] Parts chunk_by_sum(std::span<const std::int64_t> values, std::int64_t parts);

/// Consecutive buckets of the ascending lengths with the least padding in all, if every sample is
/// padded to its bucket's longest; ties as in chunk_by_sum. O(buckets n^2). Raises InputError as
/// above. Source: FlexSP, bucketing_dp.
[[nodiscard]] Parts buckets_of_least_padding(std::span<const std::int64_t> lengths,
                                             std::int64_t buckets);

}  // namespace stepsim

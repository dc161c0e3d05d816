#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace stepsim {

// Rules that deal one global batch out to ranks, as libraries for reinforcement learning do.

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

/// The batches that stream_rows() forms.
struct StreamedRows {
  std::vector<std::vector<std::vector<std::int64_t>>> steps;  ///< [step][rank] sample ids.
  std::vector<std::vector<std::int64_t>>
      unfinished;                     ///< [rank] SampleIds of rows that were never emitted.
  std::vector<std::int64_t> dropped;  ///< SampleIds above the budget.
};

/// One open row a rank: every sample goes to the row with room of the least sum of squared lengths;
/// where none has room all rows are emitted. Source: TRL, async GRPO (TokenBudgetBatcher).
[[nodiscard]] StreamedRows stream_rows(std::span<const std::int64_t> order,
                                       std::span<const std::int64_t> lengths,
                                       int ranks,
                                       std::int64_t token_budget);

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

}  // namespace stepsim

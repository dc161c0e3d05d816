#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/batching/algorithms/packing.h"

namespace stepsim {

struct BestFitCrop {
  std::int64_t capacity = 1;      ///< Tokens of a row (T + 1).
  std::int64_t buffer = 1000;     ///< Documents to choose from.
  std::int64_t refill_group = 1;  ///< Documents that the buffer is refilled with at a time.
};

/// Full rows out of a stream: the longest buffered document that fits, the first of equals; where
/// none fits the shortest one is cropped to fill the row, and its rest is lost. A last row that the
/// documents do not fill is left out. Source: nanochat, dataloader.py (groups of 128).
[[nodiscard]] PiecePacks pack_best_fit_crop(std::span<const std::int64_t> order,
                                            std::span<const std::int64_t> lengths,
                                            const BestFitCrop& options);

/// What one step takes of a stream of documents.
struct StreamStep {
  PiecePacks ranks;      ///< [rank] documents, cut at their ends.
  std::size_t next = 0;  ///< Place in the order of the first document not touched.
};

/// Every rank in turn takes documents after one another, each cut to max_length and to the room,
/// until it has exactly `tokens` + 1; none when the documents from `first` on do not fill all
/// ranks. Source: modded-nanogpt, train_gpt.py (Shard.next_batch).
[[nodiscard]] std::optional<StreamStep> take_from_stream(std::span<const std::int64_t> order,
                                                         std::span<const std::int64_t> lengths,
                                                         std::size_t first,
                                                         int ranks,
                                                         std::int64_t tokens,
                                                         std::int64_t max_length);

/// Fills the bins of a micro-batch, and keeps those that a step does not use.
class BinCollator {
 public:
  /// Emits `bins` rows of `capacity` tokens a step, and keeps the `most_leftover` fullest others
  /// (none: all).
  BinCollator(std::int64_t bins,
              std::int64_t capacity,
              std::optional<std::int64_t> most_leftover = {})
      : bins_(bins), capacity_(capacity), most_leftover_(most_leftover) {}

  /// First-fit of the descending samples, cut to the capacity, into the bins kept so far; once as
  /// many samples are left as bins are missing, each opens its own. A bin that was added to moves
  /// to the end. The largest bins are the step's rows. Source: llm-foundry, data/packing.py.
  [[nodiscard]] PiecePacks step(std::span<const std::int64_t> samples,
                                std::span<const std::int64_t> lengths);
  [[nodiscard]] PiecePacks leftover() const;

 private:
  struct Bin {
    std::int64_t tokens = 0;
    std::vector<Piece> pieces;
  };

  void place(const Piece& piece, bool alone);

  std::int64_t bins_;
  std::int64_t capacity_;
  std::optional<std::int64_t> most_leftover_;
  std::vector<Bin> open_;
};

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

/// The sum of the lengths of a row's pieces.
[[nodiscard]] std::int64_t tokens_of(std::span<const Piece> pieces);

}  // namespace stepsim

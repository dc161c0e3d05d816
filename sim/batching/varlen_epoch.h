#pragma once

#include "sim/batching/epoch_plan.h"
#include "sim/batching/varlen.h"

namespace stepsim {

/// How the batches of all ranks in one epoch fit into a varlen call.
struct VarlenUse {
  std::int64_t max_num_docs = 0;      ///< The slots of the call; 0: not compiled.
  std::int64_t batches = 0;           ///< Batches that run.
  std::int64_t most_documents = 0;    ///< The most documents of a batch, as the policy forms it.
  std::int64_t merged_batches = 0;    ///< Batches with documents that share a sequence.
  std::int64_t merged_documents = 0;  ///< Documents that share a sequence.
  std::int64_t cross_document_tokens = 0;  ///< Tokens that attend to another document.
  std::int64_t discarded_batches = 0;      ///< Batches that do not fit.
  std::int64_t trailing_batches = 0;       ///< Batches left out so that all ranks have as many.
  std::int64_t lost_documents = 0;         ///< Documents of discarded and trailing batches.
  std::int64_t lost_tokens = 0;            ///< The tokens of the lost documents.
  std::int64_t cut_documents = 0;          ///< Documents above max_seq_len, in all batches formed.
  std::int64_t cut_tokens = 0;             ///< The tokens that cutting them removes.
  double empty_blocks = 0;  ///< Empty blocks of one head, a mean over the batches that run.
  double blocks = 0;        ///< All blocks of one head's grid, the same mean.

  bool operator==(const VarlenUse&) const = default;
};

/// Takes out of an epoch the batches that do not fit.
///
/// A rank goes on with its next batch, so that no step waits for anybody. Ranks that had equally
/// many batches still do: all keep as many as the rank with fewest, and the others' last batches
/// are left out, too.
///
/// Args:
///     lengths: [sample] The lengths before they are cut.
/// Raises:
///     InputError: a batch that does not fit (Overflow::Error), a rank with none that fits.
[[nodiscard]] VarlenUse fit_into_slots(EpochBatches& epoch,
                                       std::span<const std::int64_t> lengths,
                                       const VarlenCall& call,
                                       bool causal);

/// Does the same for an epoch that may hold pieces; pieces above max_seq_len are cut to it.
[[nodiscard]] VarlenUse fit_into_slots(EpochPlan& epoch,
                                       std::span<const std::int64_t> lengths,
                                       const VarlenCall& call,
                                       bool causal);

}  // namespace stepsim

#pragma once

#include "sim/batching/epoch_plan.h"
#include "sim/batching/varlen.h"

namespace stepsim {

/// How the batches of one epoch fit into a varlen call. Batches of all ranks.
struct VarlenUse {
  std::int64_t max_num_docs = 0;    ///< Of the call; 0: not compiled.
  std::int64_t batches = 0;         ///< That run.
  std::int64_t most_documents = 0;  ///< In a batch, as the policy makes them.
  std::int64_t merged_batches = 0;
  std::int64_t merged_documents = 0;       ///< That share a sequence.
  std::int64_t cross_document_tokens = 0;  ///< That attend to another document.
  std::int64_t discarded_batches = 0;      ///< That do not fit.
  std::int64_t trailing_batches = 0;       ///< Left out so that all ranks have as many.
  std::int64_t lost_documents = 0;         ///< Of both.
  std::int64_t lost_tokens = 0;            ///< Of those.
  std::int64_t cut_documents = 0;          ///< Above max_seq_len, in all batches of the policy.
  std::int64_t cut_tokens = 0;
  double empty_blocks = 0;  ///< Mean of the batches that run, one head.
  double blocks = 0;        ///< The whole grid of one head, likewise.

  bool operator==(const VarlenUse&) const = default;
};

/// Takes the batches that do not fit out of an epoch.
///
/// A rank goes on with its next batch, so that no step waits for anybody. Ranks that had equally
/// many batches still do: all keep as many as the rank with fewest, and the others' last batches
/// are left out, too.
///
/// Args:
///     lengths: [sample], before they are cut.
/// Raises:
///     InputError: a batch that does not fit (Overflow::Error), a rank with none that fits.
[[nodiscard]] VarlenUse fit_into_slots(EpochBatches& epoch,
                                       std::span<const std::int64_t> lengths,
                                       const VarlenCall& call,
                                       bool causal);

/// The same for an epoch that may hold pieces; those above max_seq_len are cut to it.
[[nodiscard]] VarlenUse fit_into_slots(EpochPlan& epoch,
                                       std::span<const std::int64_t> lengths,
                                       const VarlenCall& call,
                                       bool causal);

}  // namespace stepsim

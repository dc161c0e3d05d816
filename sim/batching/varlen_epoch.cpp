#include "sim/batching/varlen_epoch.h"

#include <algorithm>
#include <numeric>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// Lengths of a batch's documents, cut.
std::vector<std::int64_t> documents_of(const std::vector<std::int64_t>& batch,
                                       std::span<const std::int64_t> lengths,
                                       const VarlenCall& call) {
  std::vector<std::int64_t> documents;
  for (const std::int64_t sample : batch) {
    const std::int64_t length = lengths[static_cast<std::size_t>(sample)];
    documents.push_back(call.max_seq_len > 0 ? std::min(length, call.max_seq_len) : length);
  }
  return documents;
}

void count_cuts(const Batches& batches,
                std::span<const std::int64_t> lengths,
                std::int64_t most,
                VarlenUse& use) {
  for (const auto& batch : batches) {
    for (const std::int64_t sample : batch) {
      const std::int64_t over = lengths[static_cast<std::size_t>(sample)] - most;
      use.cut_documents += over > 0 ? 1 : 0;
      use.cut_tokens += std::max<std::int64_t>(over, 0);
    }
  }
}

void count_lost(const std::vector<std::int64_t>& documents, VarlenUse& use) {
  use.lost_documents += static_cast<std::int64_t>(documents.size());
  use.lost_tokens += std::accumulate(documents.begin(), documents.end(), std::int64_t{0});
}

void count_run(const std::vector<Sequence>& sequences,
               const VarlenCall& call,
               bool causal,
               VarlenUse& use) {
  ++use.batches;
  bool merged = false;
  std::vector<std::int64_t> held;
  for (const Sequence& sequence : sequences) {
    held.push_back(sequence.length);
    if (sequence.documents > 1) {
      merged = true;
      use.merged_documents += sequence.documents;
      // The first document sees no other one when it looks back only.
      use.cross_document_tokens += sequence.length - (causal ? sequence.first_length : 0);
    }
  }
  use.merged_batches += merged ? 1 : 0;
  use.empty_blocks += static_cast<double>(empty_blocks(held, call));
  for (const std::int64_t length : held) {
    const std::int64_t blocks = (length + call.block_rows - 1) / call.block_rows;
    use.blocks += static_cast<double>(blocks);
  }
}

[[noreturn]] void fail_overflow(std::size_t rank,
                                std::size_t batch,
                                std::size_t documents,
                                const VarlenCall& call) {
  throw InputError(
      "rank {}, batch {}: {} documents for max_num_docs = {}; raise it, or set overflow "
      "= \"merge\" or \"discard\"",
      rank,
      batch,
      documents,
      call.max_num_docs);
}

}  // namespace

VarlenUse fit_into_slots(EpochBatches& epoch,
                         std::span<const std::int64_t> lengths,
                         const VarlenCall& call,
                         bool causal) {
  VarlenUse use;
  use.max_num_docs = call.max_num_docs;
  const bool were_equal = std::ranges::all_of(
      epoch, [&](const Batches& batches) { return batches.size() == epoch.front().size(); });
  std::size_t fewest = epoch.empty() ? 0 : epoch.front().size();
  for (std::size_t rank = 0; rank < epoch.size(); ++rank) {
    if (call.max_seq_len > 0) {
      count_cuts(epoch[rank], lengths, call.max_seq_len, use);
    }
    Batches kept;
    for (std::size_t i = 0; i < epoch[rank].size(); ++i) {
      const auto documents = documents_of(epoch[rank][i], lengths, call);
      use.most_documents =
          std::max(use.most_documents, static_cast<std::int64_t>(documents.size()));
      if (sequences_in_slots(documents, call)) {
        kept.push_back(std::move(epoch[rank][i]));
      } else if (call.overflow == Overflow::Error) {
        fail_overflow(rank, i, documents.size(), call);
      } else {
        ++use.discarded_batches;
        count_lost(documents, use);
      }
    }
    if (kept.empty() && !epoch[rank].empty()) {
      throw InputError("rank {}: none of its {} batches fits into max_num_docs = {}",
                       rank,
                       epoch[rank].size(),
                       call.max_num_docs);
    }
    fewest = std::min(fewest, kept.size());
    epoch[rank] = std::move(kept);
  }
  for (Batches& batches : epoch) {
    while (were_equal && batches.size() > fewest) {
      ++use.trailing_batches;
      count_lost(documents_of(batches.back(), lengths, call), use);
      batches.pop_back();
    }
    for (const auto& batch : batches) {
      count_run(*sequences_in_slots(documents_of(batch, lengths, call), call), call, causal, use);
    }
  }
  if (use.batches > 0) {
    use.blocks = (use.blocks + use.empty_blocks) / static_cast<double>(use.batches);
    use.empty_blocks /= static_cast<double>(use.batches);
  }
  return use;
}

VarlenUse fit_into_slots(EpochPlan& epoch,
                         std::span<const std::int64_t> lengths,
                         const VarlenCall& call,
                         bool causal) {
  const auto too_long = [&](std::int64_t length) {
    return call.max_seq_len > 0 && length > call.max_seq_len;
  };
  if (epoch.pieces.empty()) {
    if (std::ranges::none_of(lengths, too_long)) {
      return fit_into_slots(epoch.batches, lengths, call, causal);
    }
    for (std::size_t sample = 0; sample < lengths.size(); ++sample) {
      epoch.pieces.push_back({static_cast<std::int64_t>(sample), 0, lengths[sample]});
    }
  }
  std::vector<std::int64_t> uncut;
  for (Piece& piece : epoch.pieces) {
    uncut.push_back(piece.length);
    if (too_long(piece.length)) {
      if (call.overflow == Overflow::Error) {
        const bool whole = piece.length == lengths[static_cast<std::size_t>(piece.sample)];
        throw InputError(
            "{}sample {} has {} tokens, above the max_seq_len of {} of the varlen "
            "call; overflow = \"merge\" or \"discard\" cuts it",
            whole ? "" : "a piece of ",
            piece.sample,
            piece.length,
            call.max_seq_len);
      }
      piece.length = call.max_seq_len;
    }
  }
  return fit_into_slots(epoch.batches, uncut, call, causal);
}

}  // namespace stepsim

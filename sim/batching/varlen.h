#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace stepsim {

/// What happens to documents and batches for which a compiled varlen call has no room.
enum class Overflow {
  Error,    ///< They are bad input.
  Merge,    ///< Documents are cut; neighbours share a slot, and attend to one another.
  Discard,  ///< Documents are cut; the batch is left out.
};

/// A varlen attention call as it is compiled: cu_seqlens has max_num_docs slots, whatever a batch
/// holds, and the grid reaches max_seq_len rows in each.
/// Source: FlashAttention's varlen interface; torch.compile with dynamic = False.
struct VarlenCall {
  std::int64_t max_num_docs = 0;  ///< 0: not compiled, as many slots as the batch has documents.
  std::int64_t max_seq_len = 0;   ///< 0: the longest document of the batch.
  Overflow overflow = Overflow::Error;
  std::int64_t block_rows = 128;              ///< Rows of a thread block's tile.
  std::optional<double> empty_block_seconds;  ///< What one empty block adds to its kernel.
};

/// The names of Overflow's values, in their order: "error", "merge", "discard".
[[nodiscard]] std::span<const std::string> overflow_names();

/// The lengths, of which those above max_seq_len are cut to it. Raises InputError: a document is
/// longer, and the call has Overflow::Error.
[[nodiscard]] std::vector<std::int64_t> cut_lengths(std::span<const std::int64_t> lengths,
                                                    const VarlenCall& call);

/// A sequence that attention runs over: documents after one another.
struct Sequence {
  std::int64_t documents = 0;
  std::int64_t length = 0;
  std::int64_t first_length = 0;  ///< The length of its first document.

  bool operator==(const Sequence&) const = default;
};

/// The sequences of a batch's documents (none above max_seq_len), in their order.
///
/// While there are more than max_num_docs, the two neighbours that are shortest together become one
/// (Overflow::Merge; the first of equals). Nothing when they do not fit: no two neighbours stay
/// within max_seq_len, or merging is not allowed.
[[nodiscard]] std::optional<std::vector<Sequence>> sequences_in_slots(
    std::span<const std::int64_t> documents, const VarlenCall& call);

/// The blocks of one head's grid that hold no row. The grid has slots * ceil(max_seq_len /
/// block_rows) blocks, of which sequences of these lengths use ceil(length / block_rows) each.
/// Source: FlashAttention; such blocks exit early.
[[nodiscard]] std::int64_t empty_blocks(std::span<const std::int64_t> lengths,
                                        const VarlenCall& call);

}  // namespace stepsim

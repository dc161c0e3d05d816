#include "sim/batching/varlen.h"

#include <algorithm>
#include <array>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

std::int64_t blocks_of(std::int64_t length, std::int64_t block_rows) {
  return (length + block_rows - 1) / block_rows;
}

}  // namespace

std::span<const std::string> overflow_names() {
  static const std::array<std::string, 3> kNames = {"error", "merge", "discard"};
  return kNames;
}

std::vector<std::int64_t> cut_lengths(std::span<const std::int64_t> lengths,
                                      const VarlenCall& call) {
  std::vector<std::int64_t> cut(lengths.begin(), lengths.end());
  if (call.max_seq_len == 0) {
    return cut;
  }
  for (std::size_t sample = 0; sample < cut.size(); ++sample) {
    if (cut[sample] > call.max_seq_len && call.overflow == Overflow::Error) {
      throw InputError(
          "sample {} has {} tokens, above the max_seq_len of {} of the varlen call; "
          "overflow = \"merge\" or \"discard\" cuts it",
          sample,
          cut[sample],
          call.max_seq_len);
    }
    cut[sample] = std::min(cut[sample], call.max_seq_len);
  }
  return cut;
}

std::optional<std::vector<Sequence>> sequences_in_slots(std::span<const std::int64_t> documents,
                                                        const VarlenCall& call) {
  std::vector<Sequence> sequences = mapped(documents, [](const std::int64_t length) {
    return Sequence{1, length, length};
  });
  const auto slots = static_cast<std::size_t>(call.max_num_docs);
  while (slots > 0 && sequences.size() > slots) {
    if (call.overflow != Overflow::Merge || sequences.size() < 2) {
      return std::nullopt;
    }
    std::size_t best = 0;
    const auto together = [&](std::size_t i) {
      return sequences[i].length + sequences[i + 1].length;
    };
    for (std::size_t i = 1; i + 1 < sequences.size(); ++i) {
      best = together(i) < together(best) ? i : best;
    }
    if (call.max_seq_len > 0 && together(best) > call.max_seq_len) {
      return std::nullopt;
    }
    sequences[best].documents += sequences[best + 1].documents;
    sequences[best].length = together(best);
    sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  return sequences;
}

std::int64_t empty_blocks(std::span<const std::int64_t> lengths, const VarlenCall& call) {
  if (lengths.empty()) {
    return 0;
  }
  const auto held = static_cast<std::int64_t>(lengths.size());
  const std::int64_t slots = call.max_num_docs > 0 ? call.max_num_docs : held;
  const std::int64_t longest =
      call.max_seq_len > 0 ? call.max_seq_len : *std::ranges::max_element(lengths);
  const std::int64_t used = sum_of(
      lengths, [&](const std::int64_t length) { return blocks_of(length, call.block_rows); });
  return slots * blocks_of(longest, call.block_rows) - used;
}

}  // namespace stepsim

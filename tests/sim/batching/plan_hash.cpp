#include "tests/sim/batching/plan_hash.h"

#include <fmt/core.h>

namespace stepsim::test {

std::string plan_hash(const EpochBatches& batches, std::span<const Piece> pieces) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto feed = [&hash](std::int64_t value) {
    const auto word = static_cast<std::uint32_t>(value);
    for (unsigned shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ ((word >> shift) & 0xFFU)) * 0x100000001b3U;
    }
  };
  for (const auto& rank : batches) {
    for (const auto& batch : rank) {
      for (const std::int64_t id : batch) {
        if (pieces.empty()) {
          feed(id);
          continue;
        }
        const Piece& piece = pieces[static_cast<std::size_t>(id)];
        feed(piece.sample);
        feed(piece.offset);
        feed(piece.length);
      }
      feed(0xFFFFFFFFU);
    }
    feed(0xFFFFFFFEU);
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace stepsim::test

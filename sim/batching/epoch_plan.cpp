#include "sim/batching/epoch_plan.h"

namespace stepsim {

std::vector<Piece> EpochPlan::pieces_of(std::span<const std::int64_t> batch,
                                        std::span<const std::int64_t> lengths) const {
  std::vector<Piece> result;
  result.reserve(batch.size());
  for (const std::int64_t id : batch) {
    const auto at = static_cast<std::size_t>(id);
    result.push_back(pieces.empty() ? Piece{id, 0, lengths[at]} : pieces[at]);
  }
  return result;
}

}  // namespace stepsim

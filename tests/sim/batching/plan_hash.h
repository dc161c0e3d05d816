#pragma once

#include <span>
#include <string>

#include "sim/batching/epoch_plan.h"

namespace stepsim::test {

/// The 64-bit FNV-1a hash of a plan as 16 hex digits. It runs over 32-bit words, low byte first:
/// for every rank and every batch each id, then FFFFFFFF after each batch and FFFFFFFE after each
/// rank. With `pieces` the ids are indices of pieces, and a piece's sample, offset and length take
/// the place of its index.
[[nodiscard]] std::string plan_hash(const EpochBatches& batches,
                                    std::span<const Piece> pieces = {});

}  // namespace stepsim::test

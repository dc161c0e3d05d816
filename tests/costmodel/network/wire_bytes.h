#pragma once

#include <span>

#include "costmodel/network/collective_cost.h"
#include "costmodel/network/communication_hook.h"

namespace stepsim::test {

/// Bytes that one rank sends, and receives, for these collectives in a ring.
[[nodiscard]] inline double bytes_on_wire_per_rank(std::span<const HookCollective> collectives) {
  double bytes = 0;
  for (const HookCollective& one : collectives) {
    bytes += ring_bytes_per_rank(one.kind, one.bytes, one.ranks);
  }
  return bytes;
}

}  // namespace stepsim::test

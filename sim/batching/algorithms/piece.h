#pragma once

#include <cstdint>

namespace stepsim {

/// A part of a sample, or the whole of it: its tokens from `offset` on.
struct Piece {
  std::int64_t sample = 0;
  std::int64_t offset = 0;  ///< Where it starts in the sample, in tokens.
  std::int64_t length = 0;  ///< Tokens.

  bool operator==(const Piece&) const = default;
};

}  // namespace stepsim

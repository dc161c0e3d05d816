#pragma once

#include <compare>
#include <cstdint>
#include <span>

namespace stepsim {

/// What one rank runs in one forward pass, as far as its cost is concerned.
struct BatchShape {
  std::int64_t samples = 0;
  std::int64_t max_length = 0;     ///< Padded length of every row.
  std::int64_t useful_tokens = 0;  ///< Sum of the lengths.
  double sum_squares = 0;          ///< Sum of the squared lengths (varlen attention).
  /// Sum of causal_pairs(length, window); 0 where no window was given.
  double window_pairs = 0;
  /// Varlen: blocks in one head's grid that lie beyond the ends of their documents.
  std::int64_t empty_blocks = 0;

  [[nodiscard]] std::int64_t padded_tokens() const { return samples * max_length; }
  auto operator<=>(const BatchShape&) const = default;
};

/// Pairs (query, key) of a document with 0 <= query - key < window; a window of 0 has no end.
[[nodiscard]] double causal_pairs(double length, double window);

/// Shape of a batch that holds samples of these lengths (each >= 1), without empty blocks.
[[nodiscard]] BatchShape batch_shape(std::span<const std::int64_t> lengths,
                                     std::int64_t window = 0);

}  // namespace stepsim

#pragma once

#include <cstdint>
#include <span>

namespace stepsim {

/// What one rank runs in one forward pass, as far as its cost is concerned.
struct BatchShape {
  std::int64_t samples = 0;
  std::int64_t max_length = 0;     ///< Padded length of every row.
  std::int64_t useful_tokens = 0;  ///< Sum of the lengths.
  double sum_squares = 0;          ///< Sum of the squared lengths (varlen attention).

  [[nodiscard]] std::int64_t padded_tokens() const { return samples * max_length; }
  bool operator==(const BatchShape&) const = default;
};

/// Shape of a batch that holds samples of these lengths (each >= 1).
[[nodiscard]] BatchShape batch_shape(std::span<const std::int64_t> lengths);

}  // namespace stepsim

#pragma once

#include <compare>
#include <cstdint>
#include <span>

namespace stepsim {

/// The properties of one rank's micro-batch (one forward pass) that its cost depends on.
struct BatchShape {
  std::int64_t samples = 0;
  std::int64_t max_length = 0;     ///< The length, in tokens, to which every sample is padded.
  std::int64_t useful_tokens = 0;  ///< The sum of the lengths, without padding.
  double sum_squares = 0;          ///< The sum of the squared lengths, for varlen attention.
  /// The sum of causal_pairs(length, window) over the samples; 0 when no window was given.
  double window_pairs = 0;
  /// Varlen attention only: thread blocks of one head's grid that lie beyond the end of their
  /// document and do no work.
  std::int64_t empty_blocks = 0;

  [[nodiscard]] std::int64_t padded_tokens() const { return samples * max_length; }
  [[nodiscard]] bool has_padding() const { return useful_tokens < padded_tokens(); }
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the 0 of the comparison for one.
  auto operator<=>(const BatchShape&) const = default;
};

/// Counts the pairs (query, key) of a document with 0 <= query - key < window. A window of 0 is
/// unlimited.
[[nodiscard]] double causal_pairs(double length, double window);

/// Returns the shape of a batch of samples of these lengths (each >= 1), with empty_blocks = 0.
[[nodiscard]] BatchShape batch_shape(std::span<const std::int64_t> lengths,
                                     std::int64_t window = 0);

}  // namespace stepsim

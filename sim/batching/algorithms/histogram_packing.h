#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stepsim {

/// Packs that are filled alike: `count` of them hold sequences of these lengths.
struct PackStrategy {
  std::int64_t count = 0;
  std::vector<std::int64_t> lengths;  ///< Ascending.
  bool operator==(const PackStrategy&) const = default;
};

/// Which packs there are, and how many of each.
struct HistogramPacking {
  std::vector<PackStrategy> strategies;  ///< Ascending by lengths, each once.

  [[nodiscard]] std::int64_t packs() const;
  [[nodiscard]] std::int64_t sequences() const;
  [[nodiscard]] std::int64_t tokens() const;
};

/// Longest-pack-first histogram packing: from the longest sequences down, each length goes into the
/// packs of the smallest sufficient free space, as often as it fits.
///
/// Args:
///     counts: [length - 1] sequences of that length, 1 .. the capacity of a pack.
///     max_sequences: The most sequences of one pack, >= 1.
/// Source: Krell et al., "Efficient Sequence Packing without Cross-contamination" (2021).
[[nodiscard]] HistogramPacking pack_longest_first(std::span<const std::int64_t> counts,
                                                  std::int64_t max_sequences);

/// Shortest-pack-first histogram packing: each length goes into the packs of the largest free
/// space, one sequence each. Arguments and source are those of pack_longest_first().
[[nodiscard]] HistogramPacking pack_shortest_first(std::span<const std::int64_t> counts,
                                                   std::int64_t max_sequences);

/// The most ways to fill a pack that pack_least_squares() weighs.
inline constexpr std::int64_t kMaxFullPacks = 1 << 18;

/// Non-negative least squares histogram packing: of all ways to fill a pack to the last token with
/// max_sequences sequences or fewer, as many of each as come nearest to the histogram, rounded.
///
/// Places of a pack that no sequence is left for stay empty; a place of 8 tokens or less is given
/// up more easily than a sequence (weight sqrt(4 / capacity) against 1). Sequences that the
/// rounding leaves over are packed longest first. Args as above.
/// Raises InputError: more than kMaxFullPacks ways.
/// Source: as above; there, sequences left over have a pack each.
[[nodiscard]] HistogramPacking pack_least_squares(std::span<const std::int64_t> counts,
                                                  std::int64_t max_sequences);

}  // namespace stepsim

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/batching/algorithms/piece.h"

namespace stepsim {

// Packing: several samples after one another in one row of a given capacity. Orders and results
// are sample ids; a length is lengths[id].

/// [pack] sample ids.
using Packs = std::vector<std::vector<std::int64_t>>;

/// [pack] whole samples or parts of them.
using PiecePacks = std::vector<std::vector<Piece>>;

/// Best-fit decreasing: the smallest free space that suffices, the oldest of equal ones. Longer
/// samples are cut to the capacity, or with `split` continue in further pieces, full ones first;
/// empty ones are left out. Source: TRL, data_utils.py (bfd, bfd_split).
[[nodiscard]] PiecePacks pack_best_fit_decreasing(std::span<const std::int64_t> lengths,
                                                  std::int64_t capacity,
                                                  bool split);

/// Everything after one another, cut every `capacity` tokens; the last row may be short.
/// Source: TRL, data_utils.py (wrapped).
[[nodiscard]] PiecePacks pack_wrapped(std::span<const std::int64_t> order,
                                      std::span<const std::int64_t> lengths,
                                      std::int64_t capacity);

struct FirstFit {
  std::int64_t capacity = 1;
  std::optional<std::int64_t> max_samples;  ///< The most samples of one pack.
  std::optional<std::int64_t> group;        ///< The order is packed so many samples at a time.
};

/// First-fit in the given order: the first pack with room. A sample above the capacity has a pack
/// alone. O(n log n). Sources: axolotl, samplers/multipack.py (200 samples a pack, groups of
/// 100,000); NeMo, sequence_packing_utils.py.
[[nodiscard]] Packs pack_first_fit(std::span<const std::int64_t> order,
                                   std::span<const std::int64_t> lengths,
                                   const FirstFit& options);

/// Next-fit: a sample that has no room in the current pack begins the next one.
/// Source: axolotl, allocate_sequentially.
[[nodiscard]] Packs pack_next_fit(std::span<const std::int64_t> order,
                                  std::span<const std::int64_t> lengths,
                                  std::int64_t capacity);

/// Next-fit below the capacity: a pack closes where it would reach it, samples that reach it alone
/// are skipped, the last, unfinished pack is lost. Source: LongAlign, sort_and_group.py.
[[nodiscard]] Packs pack_longalign(std::span<const std::int64_t> order,
                                   std::span<const std::int64_t> lengths,
                                   std::int64_t capacity);

/// One pack at a time, always with the longest sample that fits (the first of equals); longer ones
/// than the capacity are left out. Source: LLaMA-Factory, greedy_knapsack.
[[nodiscard]] Packs pack_greedy_knapsack(std::span<const std::int64_t> lengths,
                                         std::int64_t capacity);

}  // namespace stepsim

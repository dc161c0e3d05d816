#pragma once

#include <optional>
#include <span>
#include <string>

#include "calibrate/import/nccl/nccl_log.h"

namespace stepsim {

/// The range that busbw / algbw can be in, given how many decimal places were printed.
struct BusFactor {
  double lo = 0;
  double hi = 0;  ///< Below `lo`: the rows contradict each other.
};

/// The intersection of the ranges of all blocks with more than 0.5 GB/s; absent without such
/// blocks.
[[nodiscard]] std::optional<BusFactor> bus_factor_of(std::span<const NcclRow> rows);

/// A range of numbers of ranks, not rounded.
struct RankRange {
  double lo = 0;
  double hi = 0;

  [[nodiscard]] bool holds(int ranks) const { return ranks >= lo && ranks <= hi; }
  /// The only whole number inside; absent when there are none or several.
  [[nodiscard]] std::optional<int> only() const;
};

/// The numbers of ranks that give this factor; absent for collectives whose factor is always 1, and
/// for unknown ones. All-reduce: n = 2 / (2 - f), or where f < 1 the (n-1)/(n+1) that one revision
/// of nccl-tests prints when NCCL_ALGO names NVLS; reduce-scatter, all-gather and all-to-all: n = 1
/// / (1 - f). Source: nccl-tests, doc/PERFORMANCE.md.
[[nodiscard]] std::optional<RankRange> ranks_of_factor(const BusFactor& factor,
                                                       const std::string& op);

/// The ranks that a table's rank lines state; absent without such lines.
[[nodiscard]] std::optional<int> listed_ranks(const NcclTable& table);

/// How many nodes `ranks` ranks fill, as the host names and device numbers of the rank lines tell.
/// Some of these lines may be missing; absent without any.
[[nodiscard]] std::optional<int> listed_nodes(const NcclTable& table, int ranks);

/// Whether two rank lines of one host show the same full bus id (with its domain).
[[nodiscard]] bool shares_gpu(const NcclTable& table);

/// The collective as the log names it, else the only one that redop, root, count and factor allow.
/// Empty when they allow several.
[[nodiscard]] std::string collective_of(const NcclTable& table);

/// Whether the rows can be those of the collective, one that a profile holds, by their redop, root
/// and count.
[[nodiscard]] bool rows_can_be(const std::string& op, const NcclTable& table);

/// "3.98 to 4.02 ranks". Bandwidths of another collective can ask for endlessly many.
[[nodiscard]] std::string text_of(const RankRange& range);

}  // namespace stepsim

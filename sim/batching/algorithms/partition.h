#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stepsim {

/// [part] indices of the values that it holds.
using Parts = std::vector<std::vector<std::int64_t>>;

/// Karmarkar-Karp's largest differencing for `parts` parts, as verl and slime run it.
///
/// Partial partitions of the largest spread are merged two at a time, largest set with smallest.
/// With equal_size every part gets as many values. Indices ascend inside a part; parts descend by
/// (sum, count, indices in the order of merging).
/// Raises InputError: parts < 1, or with equal_size a number of values that parts do not divide.
/// Source: verl, utils/seqlen_balancing.py.
[[nodiscard]] Parts karmarkar_karp(std::span<const std::int64_t> values,
                                   std::int64_t parts,
                                   bool equal_size);

/// Longest processing time: values descending, each to the part of least sum (the first of equals).
/// Indices stay in the order of placing. Raises InputError: parts < 1.
[[nodiscard]] Parts longest_processing_time(std::span<const std::int64_t> values,
                                            std::int64_t parts);

/// Any sample to any rank: least maximum over the ranks of samples * longest. Some optimum is
/// contiguous in the order of lengths, so this one is exact.
struct Repartition {
  Parts parts;                      ///< Longest samples first, equal lengths in their order.
  std::vector<std::int64_t> costs;  ///< [part] samples * longest.
};

/// A binary search over the highest cost T; from the longest, every part takes as many samples as
/// fit under T. Where that needs fewer parts, the part of the most samples (the first of equals) is
/// halved, its first half the smaller. Raises InputError: parts < 1 or above the samples.
[[nodiscard]] Repartition repartition_padded(std::span<const std::int64_t> lengths,
                                             std::int64_t parts);

}  // namespace stepsim

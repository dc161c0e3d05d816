#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "costmodel/base/mapped.h"

namespace stepsim {

/// SampleIds by their number in the data set, in some order.
using SampleIds = std::vector<std::int64_t>;

/// Returns the samples 0 to `count` - 1 in the order of the data set.
[[nodiscard]] inline SampleIds all_samples(std::size_t count) {
  SampleIds samples(count);
  std::iota(samples.begin(), samples.end(), std::int64_t{0});
  return samples;
}

/// Returns the tokens of one sample; `lengths` is [sample of the data set].
[[nodiscard]] inline std::int64_t length_of(std::span<const std::int64_t> lengths,
                                            std::int64_t sample) {
  return lengths[static_cast<std::size_t>(sample)];
}

/// Sorts by ascending length; equal lengths keep their order. It counts them where there are few
/// different ones, so that its time grows as the samples do.
void sort_by_length(std::span<std::int64_t> samples, std::span<const std::int64_t> lengths);

/// Sorts by descending length; equal lengths keep their order.
void sort_descending(std::span<std::int64_t> samples, std::span<const std::int64_t> lengths);

/// Returns the tokens of each of these samples: [as samples].
[[nodiscard]] inline std::vector<std::int64_t> lengths_of(std::span<const std::int64_t> lengths,
                                                          std::span<const std::int64_t> samples) {
  return mapped(samples, [&](const std::int64_t sample) { return length_of(lengths, sample); });
}

/// Returns the tokens of all these samples together.
[[nodiscard]] inline std::int64_t tokens_of(std::span<const std::int64_t> lengths,
                                            std::span<const std::int64_t> samples) {
  return sum_of(samples, [&](const std::int64_t sample) { return length_of(lengths, sample); });
}

}  // namespace stepsim

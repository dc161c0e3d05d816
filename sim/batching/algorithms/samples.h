#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

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

/// Returns the tokens of each of these samples: [as samples].
[[nodiscard]] inline std::vector<std::int64_t> lengths_of(std::span<const std::int64_t> lengths,
                                                          std::span<const std::int64_t> samples) {
  std::vector<std::int64_t> own;
  own.reserve(samples.size());
  for (const std::int64_t sample : samples) {
    own.push_back(length_of(lengths, sample));
  }
  return own;
}

/// Returns the tokens of all these samples together.
[[nodiscard]] inline std::int64_t tokens_of(std::span<const std::int64_t> lengths,
                                            std::span<const std::int64_t> samples) {
  std::int64_t sum = 0;
  for (const std::int64_t sample : samples) {
    sum += length_of(lengths, sample);
  }
  return sum;
}

}  // namespace stepsim

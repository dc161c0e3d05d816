#include "sim/batching/algorithms/samples.h"

#include <algorithm>
#include <cstddef>

#include "costmodel/base/index.h"

namespace stepsim {
namespace {

/// `keys`: [as samples], of which the least is `least` and the most `most`.
void sort_by_counting(std::span<std::int64_t> samples,
                      std::span<const std::int64_t> keys,
                      std::int64_t least,
                      std::int64_t most) {
  std::vector<std::size_t> next(at(most - least) + 2);
  for (const std::int64_t key : keys) {
    ++next[at(key - least) + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  SampleIds sorted(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    sorted[next[at(keys[i] - least)]++] = samples[i];
  }
  std::ranges::copy(sorted, samples.begin());
}

/// `sign`: 1 ascending, -1 descending.
void sort_by(std::span<std::int64_t> samples,
             std::span<const std::int64_t> lengths,
             std::int64_t sign) {
  const auto key_of = [&](std::int64_t sample) { return sign * length_of(lengths, sample); };
  constexpr std::size_t kFew = 64;  // A sort by comparison is as fast.
  if (samples.size() >= kFew) {
    const std::vector<std::int64_t> keys = mapped(samples, key_of);
    const auto [least, most] = std::ranges::minmax(keys);
    // The difference of any two lengths is a number, since none is negative.
    if (at(most - least) <= samples.size()) {
      sort_by_counting(samples, keys, least, most);
      return;
    }
  }
  std::ranges::stable_sort(samples, {}, key_of);
}

}  // namespace

void sort_by_length(std::span<std::int64_t> samples, std::span<const std::int64_t> lengths) {
  sort_by(samples, lengths, 1);
}

void sort_descending(std::span<std::int64_t> samples, std::span<const std::int64_t> lengths) {
  sort_by(samples, lengths, -1);
}

}  // namespace stepsim

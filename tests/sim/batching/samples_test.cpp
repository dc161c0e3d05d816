#include "sim/batching/algorithms/samples.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>

#include <doctest/doctest.h>

namespace stepsim {

TEST_CASE("samples: sorted by length, equal lengths in their order, whatever the lengths") {
  std::mt19937_64 generator(3);
  // Few samples; many of few lengths, which are counted; many that all differ.
  for (const auto& [count, longest] :
       {std::pair{10, 5}, {1'000, 1}, {1'000, 40}, {5'000, 4'999}, {1'000, 1'000'000'000}}) {
    std::vector<std::int64_t> lengths;
    for (int i = 0; i < count; ++i) {
      lengths.push_back(static_cast<std::int64_t>(generator() % static_cast<unsigned>(longest)));
    }
    SampleIds samples = all_samples(lengths.size());
    std::ranges::shuffle(samples, generator);
    const auto key = [&](std::int64_t sample) { return length_of(lengths, sample); };
    SampleIds expected = samples;
    SampleIds sorted = samples;
    std::ranges::stable_sort(expected, {}, key);
    sort_by_length(sorted, lengths);
    CHECK(sorted == expected);
    expected = sorted = samples;
    std::ranges::stable_sort(expected, std::greater<>(), key);
    sort_descending(sorted, lengths);
    CHECK(sorted == expected);
  }
}

}  // namespace stepsim

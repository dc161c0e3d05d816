#include "sim/batching/policies/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/batch_cost.h"
#include "sim/batching/random/random.h"
#include "tests/approx.h"
#include "tests/sim/batching/make_policy.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

PolicySpec planner(std::int64_t batch_size,
                   std::int64_t window,
                   const std::string& steps = "equal_samples") {
  PolicySpec spec;
  spec.name = "planner";
  spec.kind = "planner";
  spec.parameters.set("batch_size", batch_size);
  spec.parameters.set("window", window);
  spec.parameters.set("steps", steps);
  return spec;
}

std::vector<std::int64_t> random_lengths(std::uint64_t seed, std::size_t count) {
  PythonRandom random(seed);
  std::vector<std::int64_t> lengths(count);
  for (auto& length : lengths) {
    length = 1 + static_cast<std::int64_t>(std::exp(random.uniform(0, 6)));
  }
  return lengths;
}

/// Least highest cost over all ways to cut the descending samples into `ranks` parts, tried out.
double best_cut(const std::vector<std::int64_t>& lengths, std::size_t first, int ranks) {
  const auto left = static_cast<std::int64_t>(lengths.size() - first);
  if (ranks == 1) {
    return BatchCost()(left, lengths[first]);
  }
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t count = 1; count <= left - (ranks - 1); ++count) {
    const double own = BatchCost()(count, lengths[first]);
    best = std::min(
        best, std::max(own, best_cut(lengths, first + static_cast<std::size_t>(count), ranks - 1)));
  }
  return best;
}

}  // namespace

TEST_CASE("planner: each sample once, equal steps, bounded moves, the same plan again") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const auto lengths = random_lengths(seed, 40 + seed * 13);
    PolicyInput input;
    input.lengths = lengths;
    input.ranks = static_cast<int>(1 + seed % 5);
    input.sampler.shuffle = false;
    const std::int64_t batch_size = 1 + static_cast<std::int64_t>(seed % 4);
    const std::int64_t window = 2 + static_cast<std::int64_t>(seed % 3);
    const BatchingPolicy policy =
        make_policy(planner(batch_size, window, seed % 2 == 0 ? "equal_samples" : "equal_time"));
    const EpochBatches epoch = policy.epoch(input).batches;
    CHECK(epoch == policy.epoch(input).batches);
    std::map<std::int64_t, int> uses;
    const auto per_step = static_cast<std::size_t>(batch_size * input.ranks);
    for (const Batches& batches : epoch) {
      CHECK(batches.size() == epoch.front().size());
      for (std::size_t step = 0; step < batches.size(); ++step) {
        CHECK_FALSE(batches[step].empty());
        for (const std::int64_t sample : batches[step]) {
          ++uses[sample];
          // Without shuffle a sample's own window is its position in the data set.
          const std::size_t its_window =
              static_cast<std::size_t>(sample) / per_step / static_cast<std::size_t>(window);
          const bool fills_up =
              static_cast<std::size_t>(sample) < static_cast<std::size_t>(input.ranks);
          CHECK((step / static_cast<std::size_t>(window) == its_window || fills_up));
        }
      }
    }
    CHECK(uses.size() == lengths.size());
    int repeated = 0;
    for (const auto& [sample, count] : uses) {
      repeated += count - 1;
    }
    CHECK(repeated < input.ranks);
  }
}

TEST_CASE("planner: a step is dealt out with the least highest cost") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const int ranks = static_cast<int>(2 + seed % 3);
    const auto lengths = random_lengths(100 + seed, static_cast<std::size_t>(4 * ranks));
    PolicyInput input;
    input.lengths = lengths;
    input.ranks = ranks;
    const EpochBatches epoch = make_policy(planner(4, 1)).epoch(input).batches;
    double highest = 0;
    for (const Batches& batches : epoch) {
      REQUIRE(batches.size() == 1);
      std::int64_t longest = 0;
      for (const std::int64_t sample : batches.front()) {
        longest = std::max(longest, lengths[static_cast<std::size_t>(sample)]);
      }
      highest = std::max(highest,
                         BatchCost()(static_cast<std::int64_t>(batches.front().size()), longest));
    }
    auto descending = lengths;
    std::sort(descending.rbegin(), descending.rend());
    CHECK(highest == best_cut(descending, 0, ranks));
  }
}

TEST_CASE("planner: equal time is the least highest cost over all batches of a window") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const int ranks = static_cast<int>(1 + seed % 2);
    const auto lengths = random_lengths(200 + seed, static_cast<std::size_t>(9 * ranks));
    PolicyInput input;
    input.lengths = lengths;
    input.ranks = ranks;
    const EpochBatches epoch = make_policy(planner(3, 3, "equal_time")).epoch(input).batches;
    double highest = 0;
    for (const Batches& batches : epoch) {
      REQUIRE(batches.size() == 3);
      for (const auto& batch : batches) {
        std::int64_t longest = 0;
        for (const std::int64_t sample : batch) {
          longest = std::max(longest, lengths[static_cast<std::size_t>(sample)]);
        }
        highest = std::max(highest, BatchCost()(static_cast<std::int64_t>(batch.size()), longest));
      }
    }
    auto descending = lengths;
    std::sort(descending.rbegin(), descending.rend());
    CHECK(highest == best_cut(descending, 0, 3 * ranks));
  }
}

TEST_CASE("planner: max_tokens holds for every batch, in more steps where it must") {
  const auto lengths = random_lengths(7, 300);
  PolicyInput input;
  input.lengths = lengths;
  input.ranks = 3;
  for (const std::string steps : {"equal_samples", "equal_time"}) {
    CAPTURE(steps);
    PolicySpec spec = planner(8, 4, steps);
    const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    spec.parameters.set("max_tokens", longest);
    const EpochBatches epoch = make_policy(spec).epoch(input).batches;
    CHECK(epoch.front().size() > 300 / 24);
    CHECK(epoch.back().size() == epoch.front().size());
    for (const Batches& batches : epoch) {
      for (const auto& batch : batches) {
        std::int64_t most = 0;
        for (const std::int64_t sample : batch) {
          most = std::max(most, lengths[static_cast<std::size_t>(sample)]);
        }
        CHECK(most * static_cast<std::int64_t>(batch.size()) <= longest);
      }
    }
    spec.parameters.set("max_tokens", longest - 1);
    CHECK_THROWS_AS((void)make_policy(spec).epoch(input), InputError);
  }
}

TEST_CASE("planner: drop_last leaves out what fills no step") {
  const auto lengths = random_lengths(3, 50);
  PolicyInput input;
  input.lengths = lengths;
  input.ranks = 4;
  input.sampler.drop_last = true;
  const EpochBatches epoch = make_policy(planner(4, 2)).epoch(input).batches;
  std::size_t samples = 0;
  for (const Batches& batches : epoch) {
    CHECK(batches.size() == 3);
    for (const auto& batch : batches) {
      samples += batch.size();
    }
  }
  CHECK(samples == 48);
}

TEST_CASE("batch cost: exact where it is linear, never falling, proportional beyond") {
  const BatchCost linear(
      [](const BatchShape& shape) { return 2.0 * static_cast<double>(shape.padded_tokens()); },
      64,
      512);
  for (const std::int64_t samples : {1, 3, 7, 50, 64}) {
    for (const std::int64_t longest : {1, 5, 100, 511, 512}) {
      CHECK(linear(samples, longest) == Approx(2.0 * static_cast<double>(samples * longest)));
    }
  }
  CHECK(linear(0, 10) == 0);
  CHECK(linear(128, 512) == Approx(2.0 * 128 * 512));
  const BatchCost refused(
      [](const BatchShape& shape) {
        if (shape.padded_tokens() > 1000) {
          throw InputError("too much");
        }
        return 1.0;
      },
      64,
      512);
  CHECK(refused(1, 512) == 1);
  CHECK(std::isinf(refused(64, 512)));
  CHECK_THROWS_AS(BatchCost([](const BatchShape&) -> double { throw InputError("none"); }, 4, 4),
                  InputError);
}

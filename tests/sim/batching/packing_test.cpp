// Packing, exact partitions and the policies made of them.
#include "sim/batching/algorithms/packing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/histogram_packing.h"
#include "sim/batching/algorithms/ordered_partition.h"
#include "sim/batching/algorithms/packing_stream.h"
#include "sim/batching/algorithms/partition.h"
#include "tests/approx.h"
#include "tests/oracles/published_batching.h"
#include "tests/sim/batching/fixtures.h"
#include "tests/sim/batching/make_policy.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

Ids random_lengths(std::uint64_t seed, std::size_t most, std::int64_t longest) {
  std::mt19937_64 random(seed);
  Ids lengths(1 + random() % most);
  for (auto& length : lengths) {
    length = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(longest));
  }
  return lengths;
}

Ids identity(std::size_t count) {
  Ids order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// Every sample once.
bool covers(const std::vector<Ids>& parts, std::size_t count) {
  Ids all;
  for (const auto& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  std::sort(all.begin(), all.end());
  return all == identity(count);
}

std::int64_t fullest(const std::vector<Ids>& parts, const Ids& lengths) {
  std::int64_t most = 0;
  for (const auto& part : parts) {
    std::int64_t sum = 0;
    for (const auto id : part) {
      sum += lengths[static_cast<std::size_t>(id)];
    }
    most = std::max(most, sum);
  }
  return most;
}

/// The least of `cost` over all ways to put the samples into `parts` parts, none empty.
std::int64_t least_over_assignments(
    const Ids& lengths,
    std::int64_t parts,
    const std::function<std::int64_t(const std::vector<Ids>&)>& cost) {
  std::int64_t best = -1;
  std::vector<Ids> current(static_cast<std::size_t>(parts));
  const std::function<void(std::size_t)> place = [&](std::size_t sample) {
    if (sample == lengths.size()) {
      const auto empty = [](const Ids& part) { return part.empty(); };
      if (std::none_of(current.begin(), current.end(), empty)) {
        const std::int64_t own = cost(current);
        best = best < 0 ? own : std::min(best, own);
      }
      return;
    }
    for (auto& part : current) {
      part.push_back(lengths[sample]);
      place(sample + 1);
      part.pop_back();
    }
  };
  place(0);
  return best;
}

std::int64_t highest_padded(const std::vector<Ids>& parts) {
  std::int64_t highest = 0;
  for (const auto& part : parts) {
    highest = std::max(highest, std::ssize(part) * *std::max_element(part.begin(), part.end()));
  }
  return highest;
}

std::int64_t all_padded(const std::vector<Ids>& parts) {
  std::int64_t sum = 0;
  for (const auto& part : parts) {
    sum += std::ssize(part) * *std::max_element(part.begin(), part.end());
  }
  return sum;
}

}  // namespace

TEST_CASE("re-partition and least padding equal a search through all assignments") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const Ids lengths = random_lengths(seed, 7, seed % 2 == 0 ? 5 : 50);
    const auto parts =
        static_cast<std::int64_t>(1 + seed % std::min<std::size_t>(3, lengths.size()));
    const auto solved = repartition_padded(lengths, parts);
    CHECK(covers(solved.parts, lengths.size()));
    CHECK(std::ssize(solved.parts) == parts);
    CHECK(*std::max_element(solved.costs.begin(), solved.costs.end()) ==
          least_over_assignments(lengths, parts, highest_padded));
    std::vector<Ids> buckets;
    for (const auto& bucket : buckets_of_least_padding(lengths, parts)) {
      buckets.emplace_back();
      for (const auto index : bucket) {
        buckets.back().push_back(lengths[static_cast<std::size_t>(index)]);
      }
    }
    CHECK(all_padded(buckets) == least_over_assignments(lengths, parts, all_padded));
  }
}

TEST_CASE("the ordered partition equals a search through all cuts") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    Ids lengths = random_lengths(seed, 10, seed % 2 == 0 ? 4 : 60);
    OrderedPartition options;
    options.overhead = static_cast<std::int64_t>(seed % 30);
    options.stages = static_cast<std::int64_t>(1 + seed % 4);
    options.replicas = static_cast<std::int64_t>(1 + seed % 3);
    if (seed % 5 == 0) {
      options.max_tokens = 70;
    }
    const auto time = [&](const std::vector<Ids>& parts) {
      std::int64_t highest = 0;
      std::int64_t sum = 0;
      for (const auto& part : parts) {
        const std::int64_t cost = options.overhead + highest_padded({part});
        highest = std::max(highest, cost);
        sum += cost;
      }
      return (options.stages - 1) * options.replicas * highest + sum;
    };
    std::vector<Ids> found;
    const Parts parts = ordered_partition(lengths, options);
    CHECK(covers(parts, lengths.size()));
    for (const auto& part : parts) {
      found.emplace_back();
      for (const auto index : part) {
        found.back().push_back(lengths[static_cast<std::size_t>(index)]);
      }
    }
    std::sort(lengths.begin(), lengths.end());
    std::int64_t best = -1;
    for (unsigned cuts = 0; cuts < 1U << (lengths.size() - 1); ++cuts) {
      std::vector<Ids> candidate = {{lengths.front()}};
      for (std::size_t i = 1; i < lengths.size(); ++i) {
        if ((cuts >> (i - 1) & 1U) != 0) {
          candidate.emplace_back();
        }
        candidate.back().push_back(lengths[i]);
      }
      const bool fits = std::all_of(candidate.begin(), candidate.end(), [&](const Ids& part) {
        return part.size() == 1 || highest_padded({part}) <= options.max_tokens.value_or(1'000'000);
      });
      if (fits) {
        best = best < 0 ? time(candidate) : std::min(best, time(candidate));
      }
    }
    CHECK(time(found) == best);
  }
}

TEST_CASE("balanced partitions place every value once, and stay near the mean") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    Ids values = random_lengths(seed, 60, 100);
    values.resize(12 + values.size() / 4 * 4, 7);
    const std::int64_t sum = std::accumulate(values.begin(), values.end(), std::int64_t{0});
    for (const Parts& parts : {karmarkar_karp(values, 4, false),
                               karmarkar_karp(values, 4, true),
                               longest_processing_time(values, 4),
                               chunk_by_sum(values, 4)}) {
      CHECK(covers(parts, values.size()));
      CHECK(parts.size() == 4);
      CHECK(4 * fullest(parts, values) >= sum);
    }
    for (const auto& part : karmarkar_karp(values, 4, true)) {
      CHECK(part.size() == values.size() / 4);
    }
    // Longest processing time is at most (4/3 - 1/(3 m)) of any lower bound's optimum.
    const std::int64_t bound =
        std::max((sum + 3) / 4, *std::max_element(values.begin(), values.end()));
    CHECK(fullest(longest_processing_time(values, 4), values) * 12 <= 15 * bound + 12 * 100);
  }
}

TEST_CASE("no packing loses a sample or exceeds the capacity") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const Ids lengths = random_lengths(seed, 120, 64);
    const Ids order = identity(lengths.size());
    for (const Packs& packs : {pack_first_fit(order, lengths, {64, {}, {}}),
                               pack_first_fit(order, lengths, {64, 3, 16}),
                               pack_next_fit(order, lengths, 64),
                               pack_greedy_knapsack(lengths, 64)}) {
      CHECK(covers(packs, lengths.size()));
      CHECK(fullest(packs, lengths) <= 64);
    }
    for (const PiecePacks& packs :
         {pack_best_fit_decreasing(lengths, 40, true), pack_wrapped(order, lengths, 40)}) {
      Ids packed(lengths.size());
      for (const auto& pack : packs) {
        CHECK(tokens_of(pack) <= 40);
        for (const Piece& piece : pack) {
          packed[static_cast<std::size_t>(piece.sample)] += piece.length;
        }
      }
      CHECK(packed == lengths);
    }
  }
}

TEST_CASE("first-fit takes the first pack with room, as a plain search does") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const Ids lengths = random_lengths(seed, 150, 30);
    Packs expected;
    Ids rooms;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      std::size_t pack = 0;
      while (pack < rooms.size() && rooms[pack] < lengths[i]) {
        ++pack;
      }
      if (pack == rooms.size()) {
        rooms.push_back(50);
        expected.emplace_back();
      }
      rooms[pack] -= lengths[i];
      expected[pack].push_back(static_cast<std::int64_t>(i));
    }
    CHECK(pack_first_fit(identity(lengths.size()), lengths, {50, {}, {}}) == expected);
  }
}

TEST_CASE("best-fit with cropping fills every row") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    const Ids lengths = random_lengths(seed, 300, 90);
    BestFitCrop options;
    options.capacity = 65;
    options.buffer = 20;
    options.refill_group = 8;
    for (const auto& row : pack_best_fit_crop(identity(lengths.size()), lengths, options)) {
      CHECK(tokens_of(row) == 65);
      for (std::size_t i = 0; i + 1 < row.size(); ++i) {
        // Only the last document of a row is cropped.
        CHECK(row[i].length == lengths[static_cast<std::size_t>(row[i].sample)]);
      }
    }
  }
}

TEST_CASE("packing by histogram places every sequence, at most so many a pack") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    Ids counts = random_lengths(seed, 40, 30);
    for (auto& count : counts) {
      count = count % 3 == 0 ? 0 : count;
    }
    const auto most = static_cast<std::int64_t>(1 + seed % 5);
    for (const auto& packing :
         {pack_longest_first(counts, most), pack_shortest_first(counts, most)}) {
      Ids placed(counts.size());
      for (const auto& strategy : packing.strategies) {
        CHECK(std::ssize(strategy.lengths) <= most);
        CHECK(std::accumulate(strategy.lengths.begin(), strategy.lengths.end(), std::int64_t{0}) <=
              std::ssize(counts));
        for (const auto length : strategy.lengths) {
          placed[static_cast<std::size_t>(length) - 1] += strategy.count;
        }
      }
      CHECK(placed == counts);
    }
  }
}

TEST_CASE("SQuAD packed three sequences a row: 2.18161 times fewer rows, 97.74 % full") {
  const auto counts = histogram_counts("squad_1_1_384");
  if (!counts) {
    return;
  }
  Ids padded = *counts;
  padded.resize(384);
  const auto packing = pack_longest_first(padded, 3);
  const auto packs = static_cast<double>(packing.packs());
  CHECK(static_cast<double>(packing.sequences()) / packs == Approx(2.18161).epsilon(5e-6));
  CHECK(100 * static_cast<double>(packing.tokens()) / (384 * packs) == Approx(97.74).epsilon(5e-5));
}

TEST_CASE("what cannot be balanced or packed is bad input") {
  const Ids three = {1, 2, 3};
  CHECK_THROWS_AS((void)karmarkar_karp(three, 0, false), InputError);
  CHECK_THROWS_WITH_AS((void)karmarkar_karp(three, 2, true),
                       "partition: 3 values into 2 parts of equal size",
                       InputError);
  CHECK_THROWS_AS((void)longest_processing_time(three, 0), InputError);
  CHECK_THROWS_AS((void)repartition_padded(three, 4), InputError);
  CHECK_THROWS_AS((void)cumulative_lengths(three, 3), InputError);
  CHECK(!take_from_stream(identity(3), three, 0, 2, 3, 10));
  SlimeSchedule schedule;
  schedule.ranks = 2;
  CHECK_THROWS_AS((void)slime_schedule(three, schedule), InputError);
}

TEST_CASE("policies refuse what they cannot plan, and say what to write") {
  const Ids lengths = {5, 9, 2};
  PolicyInput input;
  input.lengths = lengths;
  input.ranks = 2;
  const auto message = [&](const std::string& kind, const PolicyParameters& parameters) {
    PolicySpec spec;
    spec.kind = kind;
    spec.parameters = parameters;
    try {
      (void)make_policy(spec).epoch(input);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message("packed_histogram", {{"capacity", std::int64_t{8}}}) ==
        "sample 1 has 9 tokens, above the capacity of 8; cut lengths with cap = 8 in [data]");
  CHECK(message("min_max", {{"global_batch", std::int64_t{1}}}) ==
        "min_max: global_batch = 1 does not suit 2 ranks that take 1 to 64 samples each (buffer, "
        "b_max)");
  CHECK(message("min_max", {{"global_batch", std::int64_t{9}}, {"b_max", std::int64_t{4}}}) ==
        "min_max: global_batch = 9 does not suit 2 ranks that take 1 to 4 samples each (buffer, "
        "b_max)");
  CHECK(
      message("min_max", {{"global_batch", std::int64_t{2}}, {"cost", std::string("quadratic")}}) ==
      "cost = 'quadratic' needs quadratic_tokens");
  CHECK(message("min_max", {{"global_batch", std::int64_t{2}}, {"quadratic_tokens", 5.0}}) ==
        "quadratic_tokens applies to cost = 'quadratic' only");
  CHECK(
      message("min_max", {{"global_batch", std::int64_t{2}}, {"cost", std::string("step_time")}}) ==
      "min_max: cost = 'step_time' needs a scenario with its profile or [times]");
  CHECK(message("packed_knapsack", {{"capacity", std::int64_t{8}}}).empty());
}

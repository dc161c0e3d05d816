#include "costmodel/model/cap_lists.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"

using namespace stepsim;

namespace {

using Buckets = std::vector<std::vector<int>>;

Buckets only_parameters(const std::vector<Bucket>& buckets) {
  return mapped(buckets, &Bucket::parameters);
}

/// Parameters of up to `largest` bytes, and the order in which their gradients become ready.
struct RandomTensors {
  RandomTensors(std::uint64_t seed, std::size_t count, std::uint64_t largest, bool mixed)
      : random(seed), ready(count) {
    for (std::size_t i = 0; i < count; ++i) {
      const bool other = mixed && random() % 4 == 0;
      parameters.push_back({static_cast<std::int64_t>(random() % (largest + 1)),
                            other ? "f16" : "f32",
                            mixed && random() % 8 == 0});
    }
    std::iota(ready.rbegin(), ready.rend(), 0);
    first = static_cast<std::int64_t>(1 + random() % largest);
    kind = random() % 4;
  }

  /// The buckets of a cap in one of DDP's ways: first limit fixed, first limit the cap, initial
  /// buckets, small bucket last.
  [[nodiscard]] std::vector<Bucket> fill(std::int64_t cap) const {
    const std::vector<std::int64_t> limits = {kind == 1 ? cap : first, cap};
    return kind == 2 ? initial_buckets(parameters, true, limits)
                     : rebuilt_buckets(parameters, ready, limits, kind == 3);
  }

  std::mt19937_64 random;
  std::vector<BucketParameter> parameters;
  std::vector<int> ready;
  std::int64_t first = 0;
  std::uint64_t kind = 0;
};

std::vector<BucketParameter> of_bytes(const std::vector<std::int64_t>& bytes,
                                      const std::string& dtype = "f32") {
  return mapped(bytes, [&](std::int64_t size) { return BucketParameter{size, dtype, false}; });
}

std::vector<Bucket> listed(const Buckets& lists) {
  return mapped(lists, [](const std::vector<int>& list) { return Bucket{list, 0}; });
}

}  // namespace

TEST_CASE("the lists of buckets over all caps are those that every single cap makes") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const RandomTensors model(seed, 1 + seed % 14, 30, seed % 5 == 0);
    const auto lists =
        cap_lists(model.parameters, [&](std::int64_t cap) { return model.fill(cap); });
    REQUIRE(lists.front().caps.smallest == 1);
    REQUIRE(!lists.back().caps.largest);
    std::size_t i = 0;
    for (std::int64_t cap = 1; cap <= 14 * 30 + 2; ++cap) {
      if (lists[i].caps.largest && cap > *lists[i].caps.largest) {
        ++i;
        REQUIRE(lists[i].caps.smallest == cap);
        REQUIRE(only_parameters(lists[i].buckets) != only_parameters(lists[i - 1].buckets));
      }
      REQUIRE(only_parameters(lists[i].buckets) == only_parameters(model.fill(cap)));
    }
    REQUIRE(i + 1 == lists.size());
  }
}

TEST_CASE("hundreds of tensors have few lists, found in a moment") {
  const RandomTensors model(3, 700, 200 << 20, false);
  const auto begin = std::chrono::steady_clock::now();
  const auto lists = cap_lists(model.parameters, [&](std::int64_t cap) { return model.fill(cap); });
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  MESSAGE(lists.size() << " lists of 700 tensors in " << taken.count() << " s");
  CHECK(lists.size() > 700);
  CHECK(lists.size() < 20'000);
  CHECK(taken.count() < 60);  // A tenth of one; each cap of its own would take hours.
}

TEST_CASE("equal tensors have one list for each number of them in a bucket") {
  // Six tensors of 10 bytes: caps of 1-10, 11-20, 21-30, 31-40 (4 + 2), 41-50 (5 + 1), 51 and more.
  const auto parameters = of_bytes({10, 10, 10, 10, 10, 10});
  const std::vector<int> order = {5, 4, 3, 2, 1, 0};
  const auto lists = cap_lists(
      parameters, [&](std::int64_t cap) { return rebuilt_buckets(parameters, order, cap, cap); });
  const auto ranges = mapped(lists, &CapList::caps);
  CHECK(ranges ==
        std::vector<CapRange>{{1, 10}, {11, 20}, {21, 30}, {31, 40}, {41, 50}, {51, std::nullopt}});
  CHECK(lists[3].buckets.size() == 2);
}

TEST_CASE("a limit is written in MiB with as few digits as its range allows") {
  const std::int64_t mib = 1 << 20;
  CHECK(mib_text({20 * mib, 30 * mib}) == "20");
  CHECK(mib_text({20 * mib + 1, 30 * mib}) == "21");
  CHECK(mib_text({20 * mib + 1, 20 * mib + mib / 2}) == "20.1");
  CHECK(mib_text({1, std::nullopt}) == "1");
  CHECK(mib_text({7 * mib, 7 * mib}) == "7");
  CHECK(mib_text({mib / 2 + 1, mib / 2 + mib / 16}) == "0.51");
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    CapRange range;
    range.smallest =
        static_cast<std::int64_t>(1 + random() % (std::uint64_t{1} << (random() % 40)));
    range.largest = range.smallest +
                    static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % 30)));
    const std::string text = mib_text(range);
    CAPTURE(text);
    const auto cut = static_cast<std::int64_t>(std::stod(text) * 0x1p20);  // As PyTorch does.
    const std::int64_t rounded = parse_bytes(text + " MiB").value();
    REQUIRE(cut >= range.smallest);
    REQUIRE(cut <= *range.largest);
    REQUIRE(rounded >= range.smallest);
    REQUIRE(rounded <= *range.largest);
  }
}

TEST_CASE("every partition of tensors of one dtype has its limits, but for ends without bytes") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    RandomTensors model(seed, 1 + seed % 9, seed % 3 == 0 ? 2 : 20, false);
    const auto count = model.parameters.size();
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << (count - 1); ++bits) {
      std::vector<Bucket> wanted(1);
      bool ends_with_bytes = true;
      for (std::size_t i = 0; i < count; ++i) {
        wanted.back().parameters.push_back(model.ready[i]);
        if (i + 1 < count && (bits >> i & 1U) != 0) {
          const auto last = static_cast<std::size_t>(model.ready[i]);
          ends_with_bytes = ends_with_bytes && model.parameters[last].bytes > 0;
          wanted.emplace_back();
        }
      }
      const auto ranges = limit_ranges(model.parameters, wanted);
      REQUIRE(ranges.has_value() == ends_with_bytes);
      if (!ranges) {
        continue;
      }
      for (const bool largest : {false, true}) {
        const auto limits = mapped(*ranges, [&](const CapRange& range) {
          return largest ? range.largest.value_or(1 << 30) : range.smallest;
        });
        REQUIRE(only_parameters(rebuilt_buckets(model.parameters, model.ready, limits, false)) ==
                only_parameters(wanted));
      }
      // No list that leaves out the last limit makes them.
      auto shorter = mapped(*ranges, &CapRange::smallest);
      shorter.pop_back();
      if (!shorter.empty()) {
        REQUIRE(only_parameters(rebuilt_buckets(model.parameters, model.ready, shorter, false)) !=
                only_parameters(wanted));
      }
    }
  }
}

TEST_CASE("several dtypes share the limits: their n-th buckets close at the n-th") {
  // f32 tensors 0, 1 of 8 bytes and f16 tensors 2, 3 of 2, filled in the order 3 2 1 0.
  auto parameters = of_bytes({8, 8});
  for (const BucketParameter& half : of_bytes({2, 2}, "f16")) {
    parameters.push_back(half);
  }
  // [3] closes at 1 or 2, [1] at 1 to 8: both at 1 or 2; what follows is open.
  const auto single = limit_ranges(parameters, listed({{3}, {1}, {2}, {0}}));
  REQUIRE(single);
  CHECK(*single == std::vector<CapRange>{{1, 2}});
  // [3 2] closes at 3 or 4 at most, or stays open as the last of its dtype; [1] at 1 to 8.
  const auto open = limit_ranges(parameters, listed({{1}, {0}, {3, 2}}));
  REQUIRE(open);
  CHECK(*open == std::vector<CapRange>{{3, 8}});
  // [3] needs at most 2, [1 0] at least 9.
  CHECK(!limit_ranges(parameters, listed({{3}, {2}, {1, 0}})));
  // A sparse tensor takes no limit.
  parameters[2].sparse = true;
  CHECK(limit_ranges(parameters, listed({{3}, {2}, {1}, {0}})) == std::vector<CapRange>{{1, 8}});
}

// Caches of shapes: what they key on, how they evict, and what a compiler makes of changing sizes.
#include "costmodel/compute/shape_cache.h"

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <doctest/doctest.h>

using namespace stepsim;

namespace {

BatchShape padded(std::int64_t samples, std::int64_t length) {
  return {samples, length, samples * length - 1};
}

/// How many of these batches the cache has to build something for.
int builds(const ShapeCost& cost, const std::vector<BatchShape>& batches) {
  ShapeCache cache(cost);
  int count = 0;
  for (const BatchShape& batch : batches) {
    count += cache.knows(batch) ? 0 : 1;
    cache.meet(batch);
    CHECK((cost.entries == 0 || static_cast<std::int64_t>(cache.size()) <= cost.entries));
  }
  return count;
}

std::vector<BatchShape> random_batches(unsigned seed, int count) {
  std::mt19937 generator(seed);
  std::vector<BatchShape> batches;
  for (int i = 0; i < count; ++i) {
    batches.push_back(padded(1 + generator() % 4, 8 + generator() % 6));
  }
  return batches;
}

}  // namespace

TEST_CASE("a key is the samples and the length, or what the mechanism says") {
  const std::vector<BatchShape> batches = {
      padded(8, 100), padded(7, 100), padded(8, 100), padded(4, 200), padded(8, 101)};
  ShapeCost cost;
  CHECK(builds(cost, batches) == 4);
  cost.key = ShapeKey::Length;
  CHECK(builds(cost, batches) == 3);
  cost.key = ShapeKey::Samples;
  CHECK(builds(cost, batches) == 3);
  cost.key = ShapeKey::Tokens;  // 800, 700, 800, 800, 808
  CHECK(builds(cost, batches) == 3);
  cost.key = ShapeKey::Largest;  // 800 and 808
  CHECK(builds(cost, batches) == 2);
}

TEST_CASE("lengths of 65 to 128 are one key when rounded to powers of two, batch sizes are not") {
  ShapeCost cost;
  cost.to_power_of_two = true;
  CHECK(builds(cost, {padded(8, 65), padded(8, 100), padded(8, 128)}) == 1);
  CHECK(builds(cost, {padded(8, 65), padded(7, 100), padded(8, 129)}) == 3);
  cost.mask_in_key = true;  // Padded batches carry a mask, and keep their exact lengths.
  CHECK(builds(cost, {padded(8, 65), padded(8, 100)}) == 2);
  CHECK(builds(cost, {{8, 65, 8 * 65}, {8, 100, 8 * 100}}) == 1);
  CHECK(builds(cost, {{8, 64, 8 * 64}, padded(8, 64)}) == 2);
  ShapeCost multiple;
  multiple.round_to = 64;
  CHECK(builds(multiple, {padded(8, 65), padded(8, 128), padded(8, 64)}) == 2);
}

TEST_CASE("a cache of one entry pays at each change") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<BatchShape> batches = random_batches(seed, 60);
    int changes = 1;
    for (std::size_t i = 1; i < batches.size(); ++i) {
      changes += batches[i] == batches[i - 1] ? 0 : 1;
    }
    for (const Eviction eviction : {Eviction::LeastRecent, Eviction::Oldest}) {
      ShapeCost cost;
      cost.entries = 1;
      cost.eviction = eviction;
      CHECK(builds(cost, batches) == changes);
    }
  }
}

TEST_CASE("more entries of which the least recent goes never build more") {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<BatchShape> batches = random_batches(seed, 80);
    ShapeCost cost;
    int before = static_cast<int>(batches.size());
    for (cost.entries = 1; cost.entries <= 26; ++cost.entries) {
      const int now = builds(cost, batches);
      CHECK(now <= before);
      before = now;
    }
    cost.entries = 0;
    CHECK(builds(cost, batches) == before);
  }
}

TEST_CASE("a full cache that gives nothing up keeps its first shapes") {
  ShapeCost cost;
  cost.entries = 1;
  cost.eviction = Eviction::None;
  CHECK(builds(cost, {padded(1, 8), padded(1, 9), padded(1, 8), padded(1, 9)}) == 3);
}

TEST_CASE("a compiler") {
  ShapeCost cost;
  cost.compile = CompileMode::Static;
  const std::vector<BatchShape> changing = {
      padded(8, 100), padded(8, 120), padded(8, 140), padded(8, 100), padded(6, 90)};
  SUBCASE("has a graph for every shape") {
    CHECK(builds(cost, changing) == 4);
  }
  SUBCASE("makes sizes symbolic once they change") {
    cost.compile = CompileMode::Automatic;
    CHECK(builds(cost, changing) == 3);  // Static, any length, any samples.
    CHECK(builds(cost, {padded(8, 100), padded(6, 90), padded(5, 80), padded(8, 70)}) == 2);
  }
  SUBCASE("has symbolic sizes from the start, but for a size of 1") {
    cost.compile = CompileMode::Dynamic;
    CHECK(builds(cost, changing) == 1);
    CHECK(builds(cost, {padded(8, 100), padded(1, 90), padded(1, 70), padded(4, 70)}) == 2);
  }
  SUBCASE("gives up at its limit and never compiles again") {
    cost.recompile_limit = 2;
    ShapeCache cache(cost);
    for (std::int64_t length = 10; length < 13; ++length) {
      CHECK_FALSE(cache.gave_up());
      cache.meet(padded(8, length));
    }
    CHECK(cache.gave_up());
    CHECK(cache.knows(padded(3, 77)));
    CHECK(cache.size() == 2);
  }
}

TEST_CASE("a batch without samples has no shape") {
  ShapeCache cache(ShapeCost{});
  CHECK(cache.knows({}));
  cache.meet({});
  CHECK(cache.size() == 0);
}

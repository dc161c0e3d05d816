#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/model/bucket_assignment.h"

using namespace stepsim;

namespace {

/// A random model: few dtypes, some sparse tensors, sizes around the limits, exact fits frequent.
struct RandomModel {
  explicit RandomModel(std::uint64_t seed) : generator(seed) {
    const std::vector<std::string> dtypes = {"f32", "f16", "bf16", "f64"};
    const std::uint64_t kinds = 1 + generator() % dtypes.size();
    const std::uint64_t count = 1 + generator() % 30;
    const bool has_sparse = generator() % 4 == 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      parameters.push_back({static_cast<std::int64_t>(4 * (1 + generator() % 12)),
                            dtypes[generator() % kinds],
                            has_sparse && generator() % 5 == 0});
      ready.push_back(static_cast<int>(i));
    }
    for (std::size_t i = ready.size(); i-- > 1;) {
      std::swap(ready[i], ready[generator() % (i + 1)]);
    }
    first = static_cast<std::int64_t>(4 * (1 + generator() % 10));
    cap = static_cast<std::int64_t>(4 * (1 + generator() % 40));
  }

  [[nodiscard]] const BucketParameter& of(int index) const {
    return parameters[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] bool mixed() const {
    return std::any_of(parameters.begin(), parameters.end(), [&](const BucketParameter& p) {
      return p.sparse || p.dtype != parameters.front().dtype;
    });
  }

  std::mt19937_64 generator;
  std::vector<BucketParameter> parameters;
  std::vector<int> ready;
  std::int64_t first = 0;
  std::int64_t cap = 0;
};

void check_partition(const RandomModel& model, const std::vector<Bucket>& buckets) {
  std::vector<int> all;
  std::int64_t bytes = 0;
  for (const Bucket& bucket : buckets) {
    REQUIRE(!bucket.parameters.empty());
    all.insert(all.end(), bucket.parameters.begin(), bucket.parameters.end());
    bytes += bucket_bytes(bucket, model.parameters);
    for (const int index : bucket.parameters) {
      REQUIRE(model.of(index).dtype == model.of(bucket.parameters[0]).dtype);
      REQUIRE((!model.of(index).sparse || bucket.parameters.size() == 1));
      REQUIRE((model.of(index).sparse == (bucket.limit == 0)));
    }
    // Without its last tensor a bucket is below its limit: it closed as early as it could.
    const std::int64_t last = model.of(bucket.parameters.back()).bytes;
    REQUIRE((bucket.limit == 0 || bucket_bytes(bucket, model.parameters) - last < bucket.limit));
  }
  std::sort(all.begin(), all.end());
  std::vector<int> expected(model.parameters.size());
  std::iota(expected.begin(), expected.end(), 0);
  REQUIRE(all == expected);
  const std::int64_t total =
      std::accumulate(model.parameters.begin(),
                      model.parameters.end(),
                      std::int64_t{0},
                      [](std::int64_t sum, const BucketParameter& p) { return sum + p.bytes; });
  REQUIRE(bytes == total);
}

}  // namespace

TEST_CASE("buckets partition the gradients and close as soon as they reach their limit") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    const RandomModel model(seed);
    for (const bool limited : {false, true}) {
      check_partition(model, initial_buckets(model.parameters, limited, model.first, model.cap));
    }
    check_partition(model, rebuilt_buckets(model.parameters, model.ready, model.first, model.cap));
  }
}

TEST_CASE("by default the first iteration has one dense bucket per dtype") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    const RandomModel model(seed);
    std::map<std::string, int> dense_buckets;
    for (const Bucket& bucket : initial_buckets(model.parameters, false, model.first, model.cap)) {
      const BucketParameter& head = model.of(bucket.parameters[0]);
      dense_buckets[head.dtype] += head.sparse ? 0 : 1;
    }
    for (const BucketParameter& parameter : model.parameters) {
      REQUIRE((parameter.sparse || dense_buckets[parameter.dtype] == 1));
    }
  }
}

TEST_CASE("the first limit applies once per dtype, and to its first bucket") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    RandomModel model(seed);
    model.cap += model.first;  // Limits that can be told apart.
    std::map<std::string, int> first_limits;
    for (const Bucket& bucket :
         rebuilt_buckets(model.parameters, model.ready, model.first, model.cap)) {
      if (bucket.limit == model.first) {
        ++first_limits[model.of(bucket.parameters[0]).dtype];
      }
    }
    for (const BucketParameter& parameter : model.parameters) {
      REQUIRE((parameter.sparse || first_limits[parameter.dtype] == 1));
    }
  }
}

TEST_CASE("with one dtype the small bucket launches first when rebuilt and last with find_unused") {
  int seen = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    RandomModel model(seed);
    if (model.mixed()) {
      continue;
    }
    ++seen;
    model.cap += model.first;
    CHECK(rebuilt_buckets(model.parameters, model.ready, model.first, model.cap).front().limit ==
          model.first);
    CHECK(initial_buckets(model.parameters, true, model.first, model.cap).back().limit ==
          model.first);
  }
  CHECK(seen >= 50);
}

TEST_CASE("inside a rebuilt bucket parameters stand in ready order") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    const RandomModel model(seed);
    std::vector<std::size_t> ready_at(model.ready.size());
    for (std::size_t i = 0; i < model.ready.size(); ++i) {
      ready_at[static_cast<std::size_t>(model.ready[i])] = i;
    }
    for (const Bucket& bucket :
         rebuilt_buckets(model.parameters, model.ready, model.first, model.cap)) {
      REQUIRE(std::is_sorted(bucket.parameters.begin(), bucket.parameters.end(), [&](int a, int b) {
        return ready_at[static_cast<std::size_t>(a)] < ready_at[static_cast<std::size_t>(b)];
      }));
    }
  }
}

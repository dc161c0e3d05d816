#include "costmodel/model/bucket_assignment.h"

#include <numeric>
#include <stdexcept>

#include <doctest/doctest.h>

#include "tests/sim/parallel/ddp/bucket_lists.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

constexpr std::int64_t kKi = 1024;
constexpr std::int64_t kMi = 1024 * kKi;
constexpr std::int64_t kFirst = kDefaultFirstBucketBytes;
constexpr std::int64_t kCap = kDefaultBucketCapBytes;

Lists rebuilt(const std::vector<BucketParameter>& parameters,
              std::int64_t first,
              std::int64_t cap) {
  return lists(rebuilt_buckets(parameters, reversed(parameters.size()), first, cap));
}

/// The 62 tensors of torchvision's ResNet-18, in registration order.
std::vector<BucketParameter> resnet18() {
  std::vector<std::int64_t> bytes;
  const auto convolution_and_norm = [&](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    bytes.insert(bytes.end(), {4 * out * in * kernel * kernel, 4 * out, 4 * out});
  };
  convolution_and_norm(3, 64, 7);
  std::int64_t in = 64;
  for (const std::int64_t out : {64, 128, 256, 512}) {
    for (int block = 0; block < 2; ++block) {
      convolution_and_norm(in, out, 3);
      convolution_and_norm(out, out, 3);
      if (in != out) {
        convolution_and_norm(in, out, 1);
      }
      in = out;
    }
  }
  bytes.insert(bytes.end(), {4 * 1000 * 512, 4 * 1000});
  return dense(bytes);
}

}  // namespace

TEST_CASE("a bucket closes at its limit, not one byte below") {
  CHECK(rebuilt(dense({8, 4, kMi - 4}), kFirst, kCap) == Lists{{2, 1}, {0}});
  CHECK(rebuilt(dense({8, 4, kMi - 5}), kFirst, kCap) == Lists{{2, 1, 0}});
}

TEST_CASE("a tensor is never split: a giant one joins what is pending and closes it") {
  const auto parameters = dense({10 * kMi, 100 * kMi, 10 * kMi, 512 * kKi});
  CHECK(rebuilt(parameters, kFirst, kCap) == Lists{{3, 2}, {1}, {0}});
  CHECK(lists(initial_buckets(parameters, true, kFirst, kCap)) == Lists{{2, 3}, {1}, {0}});
  CHECK(lists(initial_buckets(parameters, false, kFirst, kCap)) == Lists{{0, 1, 2, 3}});
}

TEST_CASE("dtypes fill apart and leftovers come last, the dtype seen last first") {
  const std::vector<BucketParameter> two = {{2 * kMi, "f32", false},
                                            {kMi, "f16", false},
                                            {2 * kMi, "f32", false},
                                            {kMi, "f16", false},
                                            {30 * kMi, "f32", false},
                                            {30 * kMi, "f16", false}};
  CHECK(rebuilt(two, kFirst, kCap) == Lists{{5}, {4}, {2, 0}, {3, 1}});
  const std::vector<BucketParameter> four = {{4, "f32", false},
                                             {4, "f16", false},
                                             {8, "f64", false},
                                             {4, "bf16", false},
                                             {4, "f32", false}};
  CHECK(rebuilt(four, kFirst, kCap) == Lists{{1}, {2}, {3}, {4, 0}});
  CHECK(lists(initial_buckets(four, false, kFirst, kCap)) == Lists{{3}, {2}, {1}, {0, 4}});
}

TEST_CASE("a sparse gradient goes alone, and a dense leftover launches behind it") {
  auto parameters = dense({40 * kMi, 4 * kMi, 4 * kKi, 4 * kMi, 4 * kKi});
  parameters[0].sparse = true;
  const auto buckets = rebuilt_buckets(parameters, reversed(5), kFirst, kCap);
  CHECK(lists(buckets) == Lists{{4, 3}, {0}, {2, 1}});
  CHECK(buckets[1].limit == 0);
}

TEST_CASE("a sparse gradient does not count as its dtype's first appearance") {
  const std::vector<BucketParameter> parameters = {
      {4, "f16", false}, {4, "f32", false}, {4, "f16", true}};
  CHECK(rebuilt(parameters, kFirst, kCap) == Lists{{2}, {0}, {1}});
}

TEST_CASE("an explicit cap leaves the first limit at 1 MiB, unless both are given") {
  const auto parameters = dense({4 * kMi, 8 * kMi, 16 * kMi, 2 * kMi, 512 * kKi});
  CHECK(rebuilt(parameters, kFirst, 5 * kMi) == Lists{{4, 3}, {2}, {1}, {0}});
  CHECK(rebuilt(parameters, 5 * kMi, 5 * kMi) == Lists{{4, 3, 2}, {1}, {0}});
}

TEST_CASE("a list of limits is used in turn and its last one repeats") {
  const auto parameters = dense(std::vector<std::int64_t>(12, kMi));
  const std::vector<std::int64_t> limits = {kMi, 2 * kMi, 4 * kMi};
  CHECK(lists(assign_buckets(parameters, limits, {})) ==
        Lists{{0}, {1, 2}, {3, 4, 5, 6}, {7, 8, 9, 10}, {11}});
}

TEST_CASE("a cap of zero gives every tensor its own bucket") {
  CHECK(rebuilt(dense({4, 4, 4}), 0, 0) == Lists{{2}, {1}, {0}});
}

TEST_CASE("ResNet-18 forms the buckets that a user logged from NCCL") {
  const auto bytes = [](std::int64_t cap) {
    const auto parameters = resnet18();
    std::vector<std::int64_t> result;
    for (const Bucket& bucket : rebuilt_buckets(parameters, reversed(62), kFirst, cap)) {
      result.push_back(bucket_bytes(bucket, parameters));
    }
    return result;
  };
  // pytorch issue 48880.
  CHECK(bytes(25 * kMi) == std::vector<std::int64_t>{2052000, 28852224, 15853824});
  CHECK(bytes(35 * kMi) == std::vector<std::int64_t>{2052000, 38297600, 6408448});
}

TEST_CASE("orders and limits that make no sense are refused") {
  const auto parameters = dense({4, 4, 4});
  const std::vector<std::int64_t> limits = {8};
  const auto assign = [&](const std::vector<std::int64_t>& l, const std::vector<int>& order) {
    (void)assign_buckets(parameters, l, order);
  };
  CHECK_THROWS_AS(assign({}, {}), std::invalid_argument);
  CHECK_THROWS_AS(assign({-1}, {}), std::invalid_argument);
  CHECK_THROWS_AS(assign(limits, {0, 3}), std::invalid_argument);
  CHECK_THROWS_AS(assign(limits, {0, -1}), std::invalid_argument);
  CHECK_THROWS_AS(assign(limits, {0, 1, 1}), std::invalid_argument);
  CHECK_THROWS_AS((void)rebuilt_buckets(parameters, std::vector<int>{2, 1}, 8, 8),
                  std::invalid_argument);
  CHECK_THROWS_AS((void)assign_buckets(dense({-4}), limits, {}), std::invalid_argument);
  CHECK(assign_buckets({}, limits, {}).empty());
}

// Facts of DistributedDataParallel: how gradients are grouped into buckets.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/model/model_presets.h"
#include "sim/parallel/iteration.h"
#include "sim/predict/bucket_lists.h"
#include "sim/scenario/scenario.h"
#include "tests/sim/parallel/ddp/bucket_lists.h"
#include "tests/sim/scenario/scenario_text.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

constexpr std::int64_t kMebi = std::int64_t{1} << 20;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

Sizes sizes(const std::vector<Bucket>& buckets, const std::vector<BucketParameter>& parameters) {
  Sizes result;
  for (const Bucket& bucket : buckets) {
    result.push_back(bucket_bytes(bucket, parameters));
  }
  return result;
}

/// The tensors of one case of the reference data; empty when the data are absent.
std::vector<BucketParameter> reference_model(const std::string& name) {
  const auto path = test::data_file("ddp_buckets.json");
  std::vector<BucketParameter> result;
  if (!path) {
    return result;
  }
  std::ifstream file(*path);
  const auto data = nlohmann::json::parse(file);
  for (const auto& entry : data.at("cases")) {
    if (entry.at("name") == name) {
      for (const auto& parameter : entry.at("params")) {
        result.push_back({parameter.at("bytes").get<std::int64_t>(),
                          parameter.at("dtype").get<std::string>(),
                          parameter.at("sparse").get<bool>()});
      }
    }
  }
  REQUIRE(!result.empty());
  return result;
}

Scenario scenario(const std::string& ddp) {
  return parse_scenario(
      test::replaced(test::kScenarioText, "bucket_cap = \"25 MiB\"\n", ddp + "\n"), "x.toml");
}

/// Two dtypes, each with tensors enough for three buckets of up to 2000 bytes.
std::vector<BucketParameter> two_dtypes() {
  std::vector<BucketParameter> result;
  for (int i = 0; i < 12; ++i) {
    result.push_back({800, i % 2 == 0 ? "f32" : "f16", false});
  }
  return result;
}

}  // namespace

// The first fact is in bucket_data_test.cpp: every case of the reference data.

TEST_CASE("ResNet-18 of the reference data has the buckets logged from NCCL") {
  const auto parameters = reference_model("resnet18");
  if (parameters.empty()) {
    return;
  }
  CHECK(parameters.size() == 62);
  const auto bytes = [&](std::int64_t cap) {
    return sizes(rebuilt_buckets(parameters, reversed(62), kMebi, cap), parameters);
  };
  CHECK(bytes(25 * kMebi) == Sizes{2052000, 28852224, 15853824});
  CHECK(bytes(35 * kMebi) == Sizes{2052000, 38297600, 6408448});
}

TEST_CASE("a bucket closes at equality and holds whole tensors") {
  // Ready order 3, 2, 1, 0. 600 + 400 reaches 1000 exactly; one byte less and the next one joins.
  const auto bytes = [](const Sizes& tensors) {
    const auto parameters = dense(tensors);
    const auto buckets = rebuilt_buckets(parameters, reversed(tensors.size()), 1000, 5000);
    for (const Bucket& bucket : buckets) {
      CHECK(!bucket.parameters.empty());
    }
    return sizes(buckets, parameters);
  };
  CHECK(bytes({300, 9000, 400, 600}) == Sizes{1000, 9000, 300});
  CHECK(bytes({300, 9000, 399, 600}) == Sizes{9999, 300});
  CHECK(bytes({300, 9000, 401, 600}) == Sizes{1001, 9000, 300});
  // A giant tensor is not split, and nothing is left for an empty bucket behind it.
  CHECK(bytes({1'000'000}) == Sizes{1'000'000});
  CHECK(bytes({5000, 1000}) == Sizes{1000, 5000});
}

TEST_CASE("the first limit applies once per dtype") {
  const auto parameters = two_dtypes();
  const auto buckets = rebuilt_buckets(parameters, reversed(12), 1000, 2000);
  // Of each dtype 6 x 800: 1600 >= 1000 closes the first, 2400 >= 2000 the second, 800 is left.
  std::map<std::string, Sizes> limits_of;
  std::map<std::string, Sizes> bytes_of;
  for (const Bucket& bucket : buckets) {
    const std::string& dtype =
        parameters[static_cast<std::size_t>(bucket.parameters.front())].dtype;
    limits_of[dtype].push_back(bucket.limit);
    bytes_of[dtype].push_back(bucket_bytes(bucket, parameters));
  }
  for (const char* dtype : {"f32", "f16"}) {
    CHECK(limits_of[dtype] == Sizes{1000, 2000, 2000});
    CHECK(bytes_of[dtype] == Sizes{1600, 2400, 800});
  }
}

TEST_CASE("a sparse gradient is alone in its bucket, with limit 0") {
  auto parameters = dense({4, 4, 4, 4});
  parameters[1].sparse = true;
  const auto rebuilt = rebuilt_buckets(parameters, reversed(4), 100, 200);
  CHECK(lists(rebuilt) == Lists{{1}, {3, 2, 0}});
  CHECK(limits(rebuilt) == Sizes{0, 100});
  const auto initial = initial_buckets(parameters, false, 100, 200);
  CHECK(lists(initial) == Lists{{1}, {0, 2, 3}});
  CHECK(limits(initial) == Sizes{0, kNoLimit});
}

TEST_CASE("the first iteration has one dense bucket per dtype by default") {
  const auto initial = initial_buckets(two_dtypes(), false, 1000, 2000);
  CHECK(lists(initial) == Lists{{1, 3, 5, 7, 9, 11}, {0, 2, 4, 6, 8, 10}});
  CHECK(limits(initial) == Sizes{kNoLimit, kNoLimit});
  CHECK(bucket_lists(scenario("bucket_cap = 4096")).initial.size() == 1);
  CHECK(bucket_lists(scenario("bucket_cap = 4096\nstatic_graph = true")).initial.size() == 1);
  CHECK(bucket_lists(scenario("bucket_cap = 4096\ntorch = \"1.8\"")).initial.size() > 1);
}

TEST_CASE("with find_unused_parameters buckets never change and the small one is last") {
  const BucketLists buckets = bucket_lists(
      scenario("bucket_cap = 65536\nfirst_bucket_cap = 4096\nfind_unused_parameters = true"));
  REQUIRE(buckets.initial.size() > 2);
  CHECK(lists(buckets.initial) == lists(buckets.rebuilt));
  CHECK(buckets.initial.back().limit == 4096);
  CHECK(buckets.initial.back().parameters.front() == 0);
  for (std::size_t b = 0; b + 1 < buckets.initial.size(); ++b) {
    CHECK(buckets.initial[b].limit == 65536);
  }
  IterationSequence sequence({false, true, false});
  for (int i = 0; i < 5; ++i) {
    const Iteration iteration = sequence.next();
    CHECK(!iteration.rebuilds);
    CHECK(!iteration.uses_rebuilt);
  }
  // static_graph knows the unused ones after its first iteration, and rebuilds.
  const BucketLists fixed = bucket_lists(
      scenario("bucket_cap = 65536\nfind_unused_parameters = true\nstatic_graph = true"));
  CHECK(fixed.initial.size() == 1);
}

TEST_CASE("rebuilt buckets are filled in ready order and the small one is launched first") {
  const auto parameters = dense({800, 800, 800, 800, 800, 800});
  const std::vector<int> ready = {4, 5, 1, 3, 0, 2};
  const auto buckets = rebuilt_buckets(parameters, ready, 1000, 2000);
  CHECK(lists(buckets) == Lists{{4, 5}, {1, 3, 0}, {2}});
  CHECK(limits(buckets) == Sizes{1000, 2000, 2000});
  // A dtype that never closes a bucket has the first limit as well, and comes last.
  auto mixed = parameters;
  mixed[4].dtype = "f16";
  const auto two = rebuilt_buckets(mixed, ready, 1000, 2000);
  CHECK(lists(two) == Lists{{5, 1}, {3, 0, 2}, {4}});
  CHECK(limits(two) == Sizes{1000, 2000, 1000});
}

TEST_CASE("an explicit cap leaves the first limit at 1 MiB, or sets it in the newest version") {
  CHECK(scenario("bucket_cap = \"5 MiB\"").ddp.first_bucket_cap == Bytes(kMebi));
  CHECK(scenario("bucket_cap = \"5 MiB\"\ntorch = \"1.13\"").ddp.first_bucket_cap == Bytes(kMebi));
  CHECK(scenario("bucket_cap = \"5 MiB\"\ntorch = \"newest\"").ddp.first_bucket_cap ==
        Bytes(5 * kMebi));
  CHECK(scenario("torch = \"newest\"").ddp.first_bucket_cap == Bytes(kMebi));
  CHECK(scenario("torch = \"newest\"").ddp.bucket_cap == Bytes(25 * kMebi));
  // Rows 13 and 14 of the measured examples.
  const auto parameters = dense({4 * kMebi, 8 * kMebi, 16 * kMebi, 2 * kMebi, kMebi / 2});
  CHECK(lists(rebuilt_buckets(parameters, reversed(5), kMebi, 5 * kMebi)) ==
        Lists{{4, 3}, {2}, {1}, {0}});
  CHECK(lists(rebuilt_buckets(parameters, reversed(5), 5 * kMebi, 5 * kMebi)) ==
        Lists{{4, 3, 2}, {1}, {0}});
}

TEST_CASE("a list of caps limits the buckets of the first iteration, too, from its other end") {
  // The constructor fills in order of registration: [0], [1 2], and the last limit repeats: [3 4],
  // [5 6], [7]. Its list is turned around, so that what the first limit closed is launched last.
  // The rebuild fills in ready order: what the first limit closes is launched first.
  const auto parameters = dense({10, 10, 10, 10, 10, 10, 10, 10});
  const Sizes caps = {5, 15};
  CHECK(lists(initial_buckets(parameters, true, caps)) == Lists{{7}, {5, 6}, {3, 4}, {1, 2}, {0}});
  CHECK(lists(rebuilt_buckets(parameters, reversed(8), caps, false)) ==
        Lists{{7}, {6, 5}, {4, 3}, {2, 1}, {0}});
  const Scenario listed = scenario("torch = \"newest\"\nbucket_caps = [\"1 KiB\", \"8 KiB\"]");
  const BucketLists made = bucket_lists(listed);
  CHECK(made.initial.back().limit == 1024);
  CHECK(made.rebuilt.front().limit == 1024);
  CHECK(made.rebuilt.back().limit == 8192);
  CHECK(made.initial.size() > 1);
}

TEST_CASE("DDP_SET_LAST_BUCKET_CAP puts the small bucket last") {
  // Filled from the end of the ready order 5, 4, 3, 2, 1, 0: [0 1] reaches 1000, [2 3 4] 2000, and
  // 5 is left; then the list of buckets is turned around.
  const auto parameters = dense({800, 800, 800, 800, 800, 800});
  const Sizes two_limits = {1000, 2000};
  const auto buckets = rebuilt_buckets(parameters, reversed(6), two_limits, true);
  CHECK(lists(buckets) == Lists{{5}, {2, 3, 4}, {0, 1}});
  CHECK(limits(buckets) == Sizes{2000, 2000, 1000});
  CHECK(bucket_lists(scenario("bucket_cap = 65536\nfirst_bucket_cap = 4096\n"
                              "last_bucket_cap = true"))
            .rebuilt.back()
            .limit == 4096);
}

TEST_CASE("the bytes of all buckets are those of the model, whatever the cap") {
  for (const char* name : {"gpt2-small", "bert-large", "tiny-classifier"}) {
    CAPTURE(name);
    const TransformerConfig& config = model_preset(name);
    const auto parameters = bucket_parameters(config);
    std::int64_t total = 0;
    for (const BucketParameter& parameter : parameters) {
      total += parameter.bytes;
    }
    const std::vector<int> order = ready_order(config);
    for (const std::int64_t cap :
         {std::int64_t{0}, kMebi / 4, kMebi, 25 * kMebi, 100 * kMebi, 10000 * kMebi}) {
      CAPTURE(cap);
      for (const auto& buckets : {rebuilt_buckets(parameters, order, kMebi, cap),
                                  initial_buckets(parameters, true, kMebi, cap),
                                  initial_buckets(parameters, false, kMebi, cap)}) {
        const Sizes bytes = sizes(buckets, parameters);
        CHECK(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}) == total);
      }
    }
  }
}

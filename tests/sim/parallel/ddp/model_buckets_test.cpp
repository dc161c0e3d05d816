#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/model_presets.h"
#include "tests/oracles/reducer.h"

using namespace stepsim;

TEST_CASE("GPT-2 small with a tied head ends in one bucket of 176 MB that launches last") {
  const TransformerConfig& config = model_preset("gpt2-small");
  const auto sizes = bucket_parameters(config);
  const auto buckets =
      rebuilt_buckets(sizes, ready_order(config), kDefaultFirstBucketBytes, kDefaultBucketCapBytes);
  std::vector<std::int64_t> bytes;
  std::vector<std::vector<int>> lists;
  for (const Bucket& bucket : buckets) {
    bytes.push_back(bucket_bytes(bucket, sizes));
    lists.push_back(bucket.parameters);
  }
  // PyTorch's own lists for this model, ready order reversed: reference data, gpt2_small_tied.
  std::vector<std::int64_t> expected(11, 28351488);
  expected.insert(expected.begin(), 9446400);
  expected.push_back(176446464);
  CHECK(bytes == expected);

  const StepOps ops = step_ops(config);
  const auto launches = launch_after(ops.backward, lists);
  CHECK(launches.front() < launches.back());
  CHECK(ops.backward[launches.back()].name == "embedding");
}

#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/model/bucket_assignment.h"
#include "tests/sim/parallel/ddp/bucket_lists.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::test;
using nlohmann::json;

namespace {

std::vector<BucketParameter> parameters_of(const json& entry) {
  std::vector<BucketParameter> result;
  for (const json& parameter : entry.at("params")) {
    result.push_back({parameter.at("bytes").get<std::int64_t>(),
                      parameter.at("dtype").get<std::string>(),
                      parameter.at("sparse").get<bool>()});
  }
  return result;
}

void check_case(const json& entry) {
  const auto parameters = parameters_of(entry);
  const auto first = entry.at("first_bucket_bytes").get<std::int64_t>();
  const auto cap = entry.at("cap_bytes").get<std::int64_t>();

  const auto initial = initial_buckets(parameters, false, first, cap);
  CHECK(lists(initial) == entry.at("expected_initial").get<Lists>());
  for (const Bucket& bucket : initial) {
    const bool sparse = parameters[static_cast<std::size_t>(bucket.parameters[0])].sparse;
    CHECK(bucket.limit == (sparse ? 0 : std::numeric_limits<std::int64_t>::max()));
  }

  const auto find_unused = initial_buckets(parameters, true, first, cap);
  CHECK(lists(find_unused) == entry.at("expected_initial_find_unused").get<Lists>());
  CHECK(limits(find_unused) == entry.at("expected_initial_find_unused_limits").get<Sizes>());

  const auto ready = entry.at("ready_order").get<std::vector<int>>();
  const auto rebuilt = rebuilt_buckets(parameters, ready, first, cap);
  CHECK(lists(rebuilt) == entry.at("expected_rebuilt").get<Lists>());
  CHECK(limits(rebuilt) == entry.at("expected_rebuilt_limits").get<Sizes>());
  Sizes bytes;
  for (const Bucket& bucket : rebuilt) {
    bytes.push_back(bucket_bytes(bucket, parameters));
  }
  CHECK(bytes == entry.at("expected_rebuilt_bytes").get<Sizes>());
}

}  // namespace

TEST_CASE("the bucket lists of PyTorch 1.13 are reproduced, limits and bytes included") {
  const auto path = test::data_file("ddp_buckets.json");
  if (!path) {
    return;
  }
  std::ifstream file(*path);
  const json data = json::parse(file);
  CHECK(data.at("cases").size() >= 59);
  for (const json& entry : data.at("cases")) {
    const auto name = entry.at("name").get<std::string>();
    CAPTURE(name);
    check_case(entry);
  }
}

#include "costmodel/model/bucket_cases.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"

namespace stepsim {

namespace {

void require_permutation(const JsonReader& reader, const BucketCase& bucket_case) {
  std::vector<bool> seen(bucket_case.parameters.size(), false);
  for (const int index : bucket_case.ready_order) {
    if (index < 0 || static_cast<std::size_t>(index) >= seen.size() ||
        seen[static_cast<std::size_t>(index)]) {
      reader.fail("ready_order", "must hold every parameter index exactly once");
    }
    seen[static_cast<std::size_t>(index)] = true;
  }
  if (bucket_case.ready_order.size() != seen.size()) {
    reader.fail("ready_order", "must hold every parameter index exactly once");
  }
}

void read_ready_order(JsonReader& reader, BucketCase& result) {
  if (reader.has("ready_order")) {
    for (const Json& index : reader.get("ready_order")) {
      if (!index.is_number_unsigned() || index.get<std::uint64_t>() >= result.parameters.size()) {
        reader.fail("ready_order", "expected parameter indices");
      }
      result.ready_order.push_back(index.get<int>());
    }
    require_permutation(reader, result);
  } else {
    for (std::size_t i = result.parameters.size(); i-- > 0;) {
      result.ready_order.push_back(static_cast<int>(i));
    }
  }
}

BucketParameter read_parameter(const Json& entry,
                               const std::string& file,
                               const std::string& place) {
  JsonReader parameter(entry, file, 0, place);
  BucketParameter one;
  one.bytes = parameter.integer("bytes");
  if (one.bytes <= 0) {
    parameter.fail("bytes", "must be positive");
  }
  one.dtype = parameter.text_or("dtype", "f32");
  one.sparse = parameter.boolean_or("sparse", false);
  return one;
}

BucketCase read_case(const Json& entry, const std::string& file, const std::string& place) {
  JsonReader reader(entry, file, 0, place);
  BucketCase result;
  result.name = reader.text("name");
  const Json& list = reader.get("params");
  if (!list.is_array() || list.empty()) {
    reader.fail("params", "expected a list of parameters");
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    result.parameters.push_back(
        read_parameter(list[i], file, place + ".params[" + std::to_string(i) + "]"));
  }
  result.first_bytes = reader.integer_or("first_bucket_bytes", kDefaultFirstBucketBytes);
  result.cap_bytes = reader.integer_or("cap_bytes", kDefaultBucketCapBytes);
  if (result.first_bytes <= 0 || result.cap_bytes <= 0) {
    reader.fail("cap_bytes", "limits must be positive");
  }
  read_ready_order(reader, result);
  return result;
}

}  // namespace

std::vector<BucketCase> read_bucket_cases(const std::string& path) {
  const Json file = parse_json(read_text(path), path);
  JsonReader reader(file, path, 0, "");
  const Json& list = reader.get("cases");
  if (!list.is_array()) {
    reader.fail("cases", "expected a list");
  }
  std::vector<BucketCase> cases;
  for (std::size_t i = 0; i < list.size(); ++i) {
    cases.push_back(read_case(list[i], path, "cases[" + std::to_string(i) + "]"));
  }
  return cases;
}

}  // namespace stepsim

#include "costmodel/model/bucket_cases.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"

namespace stepsim {

namespace {

constexpr std::array<std::string_view, 5> kRemarks = {
    "description", "source", "keys", "note", "tags"};

/// Raises InputError at a member that no reader asks for. Remarks may stand beside them, and what
/// a test expects.
void require_known(const JsonReader& reader,
                   const Json& object,
                   std::span<const std::string> known) {
  for (const auto& member : object.items()) {
    const bool remark = std::ranges::find(kRemarks, member.key()) != kRemarks.end() ||
                        member.key().starts_with("expected_");
    if (!remark && std::ranges::find(known, member.key()) == known.end()) {
      reader.fail(member.key(), unknown_name("key", member.key(), known));
    }
  }
}

/// Reads a list of parameter indices, each of which stands in `seen` afterwards.
std::vector<int> read_indices(JsonReader& reader, const char* key, std::vector<bool>& seen) {
  std::vector<int> indices;
  for (const Json& index : reader.get(key)) {
    if (!index.is_number_unsigned() || index.get<std::uint64_t>() >= seen.size()) {
      reader.fail(key, "expected parameter indices");
    }
    const auto place = index.get<std::size_t>();
    if (seen[place]) {
      reader.fail(key,
                  fmt::format("must hold every parameter index exactly once; {} stands twice, or "
                              "is unused, too",
                              place));
    }
    seen[place] = true;
    indices.push_back(static_cast<int>(place));
  }
  return indices;
}

void read_ready_order(JsonReader& reader, BucketCase& result) {
  std::vector<bool> seen(result.parameters.size(), false);
  std::vector<int> unused;
  if (reader.has("unused")) {
    unused = read_indices(reader, "unused", seen);
    std::ranges::sort(unused);
  }
  if (reader.has("ready_order")) {
    result.ready_order = read_indices(reader, "ready_order", seen);
    if (std::ranges::find(seen, false) != seen.end()) {
      reader.fail("ready_order",
                  "must hold every parameter index exactly once, but for those in unused");
    }
  } else {
    for (std::size_t i = result.parameters.size(); i-- > 0;) {
      if (!seen[i]) {
        result.ready_order.push_back(static_cast<int>(i));
      }
    }
  }
  result.ready_order.insert(result.ready_order.end(), unused.begin(), unused.end());
}

BucketParameter read_parameter(const Json& entry,
                               const std::string& file,
                               const std::string& place) {
  JsonReader parameter(entry, file, 0, place);
  require_known(parameter, entry, std::array<std::string, 3>{"bytes", "dtype", "sparse"});
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
  const std::array<std::string, 7> known = {
      "name", "params", "ready_order", "unused", "first_bucket_bytes", "cap_bytes", "limits"};
  require_known(reader, entry, known);
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
  if (reader.has("limits")) {
    result.cap_list = reader.integers("limits");
    if (result.cap_list.empty() ||
        std::ranges::any_of(result.cap_list, [](std::int64_t limit) { return limit <= 0; })) {
      reader.fail("limits", "expected bytes, each of them positive");
    }
    const bool two_more = reader.has("first_bucket_bytes") || reader.has("cap_bytes");
    if (two_more && result.cap_list != std::vector{result.first_bytes, result.cap_bytes}) {
      reader.fail("limits", "differ from first_bucket_bytes and cap_bytes; give one of both");
    }
    if (two_more) {
      result.cap_list.clear();
    }
  }
  read_ready_order(reader, result);
  return result;
}

}  // namespace

std::vector<BucketCase> read_bucket_cases(const std::string& path) {
  const Json file = parse_json(read_text(path), path);
  JsonReader reader(file, path, 0, "");
  require_known(reader, file, std::array<std::string, 1>{"cases"});
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

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

std::string_view kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a text";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    default:
      return "a number";
  }
}

std::string expected(std::string_view what, const Json& found) {
  const std::string shown = found.is_number() ? found.dump() : std::string(kind_of(found));
  return fmt::format("expected {}, found {}", what, shown);
}

/// Reads an integer, also when it is written as 3.0 or 1e6; returns false when it is not a whole
/// number or does not fit.
bool as_integer(const Json& value, std::int64_t& result) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    result = static_cast<std::int64_t>(number);
    return number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  }
  if (value.is_number_integer()) {
    result = value.get<std::int64_t>();
    return true;
  }
  if (!value.is_number_float()) {
    return false;
  }
  const auto number = value.get<double>();
  if (std::floor(number) != number || std::abs(number) > 0x1p53) {
    return false;
  }
  result = static_cast<std::int64_t>(number);
  return true;
}

constexpr std::string_view kInteger = "an integer of 64 bits";

}  // namespace

JsonReader::JsonReader(
    const Json& object, std::string file, int line, std::string path, const std::string* source)
    : object_(object),
      file_(std::move(file)),
      line_(line),
      path_(std::move(path)),
      source_(source) {
  if (!object_.is_object()) {
    fail_at(path_, expected("an object", object_));
  }
}

std::string JsonReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void JsonReader::fail_at(const std::string& path, const std::string& message) const {
  SourcePlace place;
  place.file = file_;
  place.line = line_;
  if (source_ != nullptr) {
    const int line = line_of(*source_, path);
    place.line = line > 0 ? line : line_of(*source_, path_);
  }
  throw InputError(place, path.empty() ? message : fmt::format("{}: {}", path, message));
}

void JsonReader::fail(std::string_view key, const std::string& message) const {
  fail_at(path_of(key), message);
}

void JsonReader::fail(std::string_view key, std::size_t index, const std::string& message) const {
  fail_at(fmt::format("{}[{}]", path_of(key), index), message);
}

bool JsonReader::has(std::string_view key) const {
  return object_.contains(key);
}

const Json& JsonReader::get(std::string_view key) {
  const auto found = object_.find(key);
  if (found == object_.end()) {
    fail(key, "missing");
  }
  return *found;
}

bool JsonReader::is_null(std::string_view key) {
  return get(key).is_null();
}

double JsonReader::number(std::string_view key) {
  const Json& value = get(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    fail(key, expected("a finite number", value));
  }
  return value.get<double>();
}

double JsonReader::number_or(std::string_view key, double fallback) {
  return has(key) ? number(key) : fallback;
}

std::int64_t JsonReader::integer(std::string_view key) {
  std::int64_t result = 0;
  if (!as_integer(get(key), result)) {
    fail(key, expected(kInteger, get(key)));
  }
  return result;
}

std::int64_t JsonReader::integer_or(std::string_view key, std::int64_t fallback) {
  return has(key) ? integer(key) : fallback;
}

int JsonReader::integer_in(std::string_view key, int lo, int hi) {
  const std::int64_t value = integer(key);
  if (value < lo || value > hi) {
    if (hi == std::numeric_limits<int>::max()) {
      fail(key, fmt::format("{} is below {}", value, lo));
    }
    fail(key, fmt::format("{} is outside {}..{}", value, lo, hi));
  }
  return static_cast<int>(value);
}

std::uint64_t JsonReader::unsigned_integer(std::string_view key) {
  const Json& value = get(key);
  if (value.is_number_unsigned()) {
    return value.get<std::uint64_t>();
  }
  std::int64_t result = 0;
  if (!as_integer(value, result) || result < 0) {
    fail(key, expected("an integer of 64 bits, not negative", value));
  }
  return static_cast<std::uint64_t>(result);
}

std::string JsonReader::text(std::string_view key) {
  const Json& value = get(key);
  if (!value.is_string()) {
    fail(key, expected("a text", value));
  }
  return value.get<std::string>();
}

std::string JsonReader::text_or(std::string_view key, std::string fallback) {
  return has(key) ? text(key) : std::move(fallback);
}

bool JsonReader::boolean(std::string_view key) {
  const Json& value = get(key);
  if (!value.is_boolean()) {
    fail(key, expected("true or false", value));
  }
  return value.get<bool>();
}

bool JsonReader::boolean_or(std::string_view key, bool fallback) {
  return has(key) ? boolean(key) : fallback;
}

const Json& JsonReader::array(std::string_view key) {
  const Json& value = get(key);
  if (!value.is_array()) {
    fail(key, expected("an array", value));
  }
  return value;
}

std::vector<double> JsonReader::numbers(std::string_view key) {
  std::vector<double> result;
  for (const Json& value : array(key)) {
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      fail(key, result.size(), expected("a finite number", value));
    }
    result.push_back(value.get<double>());
  }
  return result;
}

double JsonReader::not_negative(std::string_view key) {
  const double value = number(key);
  if (value < 0) {
    fail(key, fmt::format("{} is negative", value));
  }
  return value;
}

double JsonReader::not_negative_or(std::string_view key, double fallback) {
  return has(key) ? not_negative(key) : fallback;
}

std::pair<double, double> JsonReader::range(std::string_view key, double least) {
  const std::vector<double> range = numbers(key);
  if (range.size() != 2 || range[0] < least || range[0] > range[1]) {
    fail(key, fmt::format("expected [lo, hi] with {} <= lo <= hi", least));
  }
  return {range[0], range[1]};
}

std::vector<std::int64_t> JsonReader::integers(std::string_view key) {
  const Json& values = array(key);
  std::vector<std::int64_t> result;
  result.reserve(values.size());
  for (const Json& value : values) {
    std::int64_t number = 0;
    if (!as_integer(value, number)) {
      fail(key, result.size(), expected(kInteger, value));
    }
    result.push_back(number);
  }
  return result;
}

std::vector<std::string> JsonReader::texts(std::string_view key) {
  std::vector<std::string> result;
  for (const Json& value : array(key)) {
    if (!value.is_string()) {
      fail(key, result.size(), expected("a text", value));
    }
    result.push_back(value.get<std::string>());
  }
  return result;
}

JsonReader JsonReader::object(std::string_view key) {
  return {get(key), file_, line_, path_of(key), source_};
}

std::vector<JsonReader> JsonReader::objects(std::string_view key) {
  std::vector<JsonReader> result;
  for (const Json& value : array(key)) {
    result.emplace_back(
        value, file_, line_, fmt::format("{}[{}]", path_of(key), result.size()), source_);
  }
  return result;
}

void JsonReader::require_format(std::string_view expected_format) {
  const std::string found = text("format");
  if (found == expected_format) {
    return;
  }
  const std::string_view family = expected_format.substr(0, expected_format.find('/') + 1);
  const bool same_family = found.substr(0, family.size()) == family;
  fail("format",
       fmt::format("wrong {}: expected {}, got '{}'",
                   same_family ? "version" : "file type",
                   expected_format,
                   printable(found)));
}

}  // namespace stepsim

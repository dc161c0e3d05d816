#include "sim/scenario/toml_reader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/parse_units.h"

namespace stepsim {

using Kind = TomlValue::Kind;

TomlReader::TomlReader(const TomlDocument& document, const TomlValue& table, std::string path)
    : document_(document), table_(table), path_(std::move(path)) {}

std::string TomlReader::path_to(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

void TomlReader::fail(std::string_view key, const std::string& message, Lookup lookup) const {
  const TomlValue* found = table_.find(key);
  fail_at(
      document_, found != nullptr ? *found : table_, TomlAt::Value, path_to(key), message, lookup);
}

void TomlReader::fail(const std::string& message) const {
  fail_at(document_, table_, TomlAt::Value, path_, message);
}

void TomlReader::fail(std::string_view key, const InputError& error) const {
  fail(key, error.what(), error.lookup());
}

void TomlReader::fail(const InputError& error) const {
  fail_at(document_, table_, TomlAt::Value, path_, error.what(), error.lookup());
}

void TomlReader::wrong_type(std::string_view key, std::string_view expected) const {
  fail(key, fmt::format("expected {}, got {}", expected, describe(value(key))));
}

const TomlValue& TomlReader::value(std::string_view key) const {
  const TomlValue* found = table_.find(key);
  if (found == nullptr) {
    fail(key, "missing");
  }
  return *found;
}

std::string TomlReader::text(std::string_view key) const {
  const TomlValue& found = value(key);
  // On a command line `--set ddp.torch=2.4` is meant as text though it reads as a number.
  const bool is_scalar = found.kind != Kind::List && found.kind != Kind::Table;
  if (found.kind != Kind::Text && is_scalar && !found.override_text.empty()) {
    found.read_as_text = true;
    return found.override_text;
  }
  if (found.kind != Kind::Text) {
    wrong_type(key, "a string in quotes");
  }
  return found.text;
}

std::string TomlReader::text_or(std::string_view key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

bool TomlReader::boolean_or(std::string_view key, bool fallback) const {
  if (!has(key)) {
    return fallback;
  }
  if (value(key).kind != Kind::Boolean) {
    wrong_type(key, "true or false");
  }
  return value(key).boolean;
}

std::int64_t TomlReader::integer(std::string_view key,
                                 std::int64_t least,
                                 std::int64_t most) const {
  if (value(key).kind != Kind::Integer) {
    wrong_type(key, "an integer");
  }
  const std::int64_t result = value(key).integer;
  if (result < least) {
    fail(key, fmt::format("{} is too small; expected at least {}", result, least));
  }
  if (result > most) {
    fail(key, fmt::format("{} is too large; expected at most {}", result, most));
  }
  return result;
}

std::int64_t TomlReader::integer_or(std::string_view key,
                                    std::int64_t fallback,
                                    std::int64_t least,
                                    std::int64_t most) const {
  return has(key) ? integer(key, least, most) : fallback;
}

double TomlReader::number(std::string_view key) const {
  const TomlValue& found = value(key);
  if (found.kind == Kind::Integer) {
    return static_cast<double>(found.integer);
  }
  if (found.kind != Kind::Real) {
    wrong_type(key, "a number");
  }
  if (!std::isfinite(found.real)) {
    fail(key, "expected a finite number");
  }
  return found.real;
}

double TomlReader::number_or(std::string_view key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

Bytes TomlReader::bytes(std::string_view key) const {
  const TomlValue& found = value(key);
  if (found.kind != Kind::Integer && found.kind != Kind::Text) {
    wrong_type(key, "a size such as \"25 MiB\", or bytes as an integer");
  }
  Bytes result;
  try {
    result = parse_bytes(found.kind == Kind::Text ? found.text : std::to_string(found.integer));
  } catch (const InputError& error) {
    fail(key, error);
  }
  if (result.value() < 1) {
    fail(key, "a size of 0 bytes; expected at least 1");
  }
  return result;
}

Bytes TomlReader::bytes_or(std::string_view key, Bytes fallback) const {
  return has(key) ? bytes(key) : fallback;
}

Duration parse_scenario_duration(std::string_view text) {
  const Duration duration = parse_duration(text);
  if (duration > kMaxScenarioDuration) {
    throw InputError("'{}' is too long; expected at most 1 hour", printable(text));
  }
  return duration;
}

Duration TomlReader::duration(std::string_view key) const {
  return parsed(key, [](const std::string& written) { return parse_scenario_duration(written); });
}

double TomlReader::bandwidth(std::string_view key) const {
  const double result =
      parsed(key, [](const std::string& written) { return parse_bandwidth(written); });
  if (result > 0 && result < kMinScenarioBandwidth) {
    fail(key, fmt::format("{:g} B/s is too slow; expected at least 1 kB/s", result));
  }
  return result;
}

TomlReader TomlReader::table(std::string_view key) const {
  if (value(key).kind != Kind::Table) {
    wrong_type(key, "a table");
  }
  return TomlReader(document_, value(key), path_to(key));
}

const std::vector<TomlValue>& TomlReader::list(std::string_view key) const {
  if (value(key).kind != Kind::List) {
    wrong_type(key, "a list");
  }
  return value(key).children;
}

std::shared_ptr<const std::vector<std::int64_t>> TomlReader::integers(std::string_view key) const {
  const std::vector<TomlValue>& items = list(key);
  if (value(key).integers != nullptr) {
    return value(key).integers;
  }
  auto numbers = std::make_shared<std::vector<std::int64_t>>();
  for (const TomlValue& item : items) {
    if (item.kind != Kind::Integer) {
      fail(key, fmt::format("expected whole numbers, got {} in the list", describe(item)));
    }
    numbers->push_back(item.integer);
  }
  return numbers;
}

std::string read_choice(const TomlReader& table,
                        const std::string& key,
                        const std::string& fallback,
                        std::span<const std::string> known) {
  std::string chosen = table.text_or(key, fallback);
  if (std::ranges::find(known, chosen) == known.end()) {
    table.fail(key, unknown_name("value", chosen, known));
  }
  return chosen;
}

void require_other(const TomlReader& table,
                   const std::string& key,
                   const std::string& other,
                   const std::string& meaning) {
  if (table.has(key) && !table.has(other)) {
    table.fail(key, fmt::format("has no effect without {}, which says {}", other, meaning));
  }
}

std::string resolved_path(const TomlReader& table, const std::string& key) {
  std::string written = table.text(key);
  if (written.empty() || written.find('\0') != std::string::npos) {
    table.fail(key, "expected a path");
  }
  if (table.value(key).override_key.empty()) {
    const auto folder = std::filesystem::path(table.document().file).parent_path();
    written = (folder / written).lexically_normal().string();
  }
  table.document().named_files.push_back(written);
  return written;
}

}  // namespace stepsim

#include "sim/scenario/key.h"

#include <fmt/core.h>

#include "costmodel/base/parse_units.h"

namespace stepsim {

std::string documented(bool value) {
  return value ? "true" : "false";
}

std::string documented(std::int64_t value) {
  return fmt::format("{}", value);
}

std::string documented(double value) {
  return fmt::format("{:g}", value);
}

std::string documented(Bytes value) {
  return documented(format_bytes(value));
}

std::string documented(const std::string& value) {
  return fmt::format("`\"{}\"`", value);
}

NumberRange fraction() {
  return {[](double value) { return value >= 0 && value <= 1; }, "a fraction from 0 to 1"};
}

NumberRange slowdown() {
  return {[](double value) { return value >= 0 && value <= 100; }, "0 (nothing) .. 100"};
}

NumberRange positive_number() {
  return {[](double value) { return value > 0; }, "more than 0"};
}

double read_number(const TomlReader& table, const std::string& key, const NumberRange& range) {
  const double value = table.number(key);
  if (!range.holds(value)) {
    table.fail(key, fmt::format("{} is out of range; expected {}", value, range.expected));
  }
  return value;
}

Key custom(const std::string& name,
           const Key::Read& read,
           const std::string& meaning,
           const std::string& fallback) {
  return {name, meaning, fallback, read, false, {}, {}};
}

Key described(const std::string& name, const std::string& meaning, const std::string& fallback) {
  return {name, meaning, fallback, {}, false, {}, {}};
}

Key required(Key key) {
  key.required = true;
  key.fallback.clear();
  return key;
}

Key holding(Quantity quantity, Key key) {
  key.quantity = quantity;
  return key;
}

Key touching(Stage first, Key key) {
  key.touches = first;
  return key;
}

std::vector<Key> touching(Stage first, std::vector<Key> keys) {
  for (Key& key : keys) {
    key.touches = key.touches.value_or(first);
  }
  return keys;
}

}  // namespace stepsim

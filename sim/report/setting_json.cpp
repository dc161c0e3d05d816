#include "sim/report/setting_json.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "sim/scenario/key_table.h"

namespace stepsim {
namespace {

/// A text as a number; "auto" and its like stay texts.
Json in_unit(const std::string& text, Quantity unit) {
  try {
    switch (unit) {
      case Quantity::Size:
        return parse_bytes(text).value();
      case Quantity::Time:
        return parse_seconds(text);
      case Quantity::Bandwidth:
        return parse_bandwidth(text);
      case Quantity::Text:
      case Quantity::None:
        break;
    }
  } catch (const InputError&) {
  }
  return text;
}

Json value_json(const TomlValue& value, Quantity unit) {
  switch (value.kind) {
    case TomlValue::Kind::Boolean:
      return value.boolean;
    case TomlValue::Kind::Integer:
      return value.integer;
    case TomlValue::Kind::Real:
      return value.real;
    case TomlValue::Kind::Text:
    case TomlValue::Kind::DateTime:
      return in_unit(value.text, unit);
    case TomlValue::Kind::List:
      if (value.integers != nullptr) {
        return *value.integers;
      }
      return mapped(value.children,
                    [&](const TomlValue& child) { return value_json(child, unit); });
    case TomlValue::Kind::Table:
      break;
  }
  Json members = Json::object();
  for (const TomlValue& child : value.children) {
    members[child.key] = value_json(child, Quantity::None);
  }
  return members;
}

}  // namespace

Json setting_json(const Setting& setting) {
  const Quantity unit = quantity_of(setting.key());
  const TomlValue::Kind kind = setting.value().kind;
  const bool is_scalar = kind != TomlValue::Kind::List && kind != TomlValue::Kind::Table;
  const bool reads_as_text = unit == Quantity::Text && is_scalar;  // The version 2.10 is not 2.1.
  return reads_as_text || kind == TomlValue::Kind::DateTime ? Json(setting.value_text())
                                                            : value_json(setting.value(), unit);
}

std::string unit_text(const std::string& key) {
  switch (quantity_of(key)) {
    case Quantity::Size:
      return "B";
    case Quantity::Time:
      return "s";
    case Quantity::Bandwidth:
      return "B/s";
    case Quantity::Text:
    case Quantity::None:
      break;
  }
  return "";
}

}  // namespace stepsim

#include "sim/scenario/setting.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "costmodel/base/content_id.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/trimmed.h"
#include "sim/scenario/toml_text.h"

namespace stepsim {
namespace {

TomlValue value_of_text(const std::string& text) {
  auto value = parse_toml_value(text);
  if (!value) {
    value.emplace();
    value->kind = TomlValue::Kind::Text;
    value->text = text;
  }
  return *std::move(value);
}

/// Texts stand without quotes wherever they read as such.
std::string set_text(const TomlValue& value) {
  if (value.kind == TomlValue::Kind::Text && trimmed(value.text) == value.text &&
      !parse_toml_value(value.text)) {
    return value.text;
  }
  return toml_value_text(value);
}

}  // namespace

Setting::Setting(std::string key, std::string text)
    : key_(std::move(key)), value_(value_of_text(text)), text_(std::move(text)) {}

Setting::Setting(std::string key, const char* text) : Setting(std::move(key), std::string(text)) {}

Setting::Setting(std::string key, Bytes size) : Setting(std::move(key), exact_bytes(size)) {}

Setting::Setting(std::string key, TomlValue value)
    : key_(std::move(key)), value_(std::move(value)), text_(set_text(value_)) {}

Setting::Setting(std::string key, std::shared_ptr<const std::vector<std::int64_t>> lengths)
    : key_(std::move(key)) {
  const std::string_view bytes(reinterpret_cast<const char*>(lengths->data()),
                               lengths->size() * sizeof(std::int64_t));
  text_ = fmt::format("{{ values = {} lengths, {} }}", lengths->size(), content_id(bytes));
  TomlValue values;
  values.kind = TomlValue::Kind::List;
  values.key = "values";
  values.integers = std::move(lengths);
  value_.children.push_back(std::move(values));
}

}  // namespace stepsim

#include "costmodel/architecture/config_file.h"

#include <cctype>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"

namespace stepsim {
namespace {

/// The largest size: products of two of them and the experts fit in 64 bits.
constexpr std::int64_t kLargestNumber = std::int64_t{1} << 24;

/// The value of a key; null where it is not there or null.
const Json* value_at(const JsonValue& object, std::string_view key) {
  const auto found = object->find(std::string(key));
  return found == object->end() || found->is_null() ? nullptr : &*found;
}

std::int64_t size_of(const Json& value, std::string_view key) {
  const bool whole = value.is_number_unsigned() &&
                     value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kLargestNumber);
  if (!whole) {
    throw FieldError(std::string(key),
                     fmt::format("expected a whole number from 0 to {}, not {}",
                                 kLargestNumber,
                                 printable(value.dump(), 40)));
  }
  return value.get<std::int64_t>();
}

std::string text_of(const Json& value, std::string_view key) {
  if (!value.is_string()) {
    throw FieldError(std::string(key),
                     fmt::format("expected a text, not {}", printable(value.dump(), 40)));
  }
  return value.get<std::string>();
}

const Json& list_at(const Json& value, std::string_view key) {
  if (!value.is_array()) {
    throw FieldError(std::string(key),
                     fmt::format("expected a list, not {}", printable(value.dump(), 40)));
  }
  return value;
}

}  // namespace

ConfigFile::ConfigFile(std::string_view text, const std::string& file)
    : object_(parse_json(text, file)) {
  if (!object_->is_object() || value_at(object_, "model_type") == nullptr) {
    throw InputError(SourcePlace{file},
                     "no model_type: expected the config.json of a model of transformers, as "
                     "AutoConfig.from_pretrained(NAME).to_json_file(\"config.json\") writes it");
  }
  model_type_ = text_of(*value_at(object_, "model_type"), "model_type");
  if (const auto classes = texts("architectures"); !classes.empty()) {
    architecture_ = classes.front();
  }
}

bool ConfigFile::has(std::string_view key) const {
  return value_at(object_, key) != nullptr;
}

bool ConfigFile::is_null(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found != object_->end() && found->is_null();
}

std::int64_t ConfigFile::integer(std::initializer_list<std::string_view> keys,
                                 std::int64_t fallback) const {
  for (const std::string_view key : keys) {
    if (const Json* value = value_at(object_, key)) {
      return size_of(*value, key);
    }
  }
  return fallback;
}

std::string ConfigFile::part_type(std::string_view key) const {
  const Json* part = value_at(object_, key);
  if (part == nullptr || !part->is_object()) {
    return "";
  }
  const auto type = part->find("model_type");
  return type != part->end() && type->is_string() ? type->get<std::string>() : "";
}

bool ConfigFile::flag(std::string_view key, bool fallback) const {
  const Json* value = value_at(object_, key);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_boolean()) {
    throw FieldError(std::string(key),
                     fmt::format("expected true or false, not {}", printable(value->dump(), 40)));
  }
  return value->get<bool>();
}

std::string ConfigFile::text(std::string_view key, const std::string& fallback) const {
  const Json* value = value_at(object_, key);
  return value == nullptr ? fallback : text_of(*value, key);
}

std::vector<std::string> ConfigFile::texts(std::string_view key) const {
  std::vector<std::string> result;
  if (const Json* value = value_at(object_, key)) {
    for (const Json& one : list_at(*value, key)) {
      result.push_back(text_of(one, key));
    }
  }
  return result;
}

std::vector<std::string> ConfigFile::words(std::string_view key) const {
  const Json* value = value_at(object_, key);
  if (value == nullptr || value->is_array()) {
    return texts(key);
  }
  std::vector<std::string> result(1);
  for (const char letter : text_of(*value, key)) {
    if (letter == '|') {
      result.emplace_back();
    } else if (letter != ' ') {
      result.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
  }
  return result;
}

bool ConfigFile::is_positive(std::string_view key) const {
  const Json* value = value_at(object_, key);
  return value != nullptr && value->is_number_integer() && value->get<std::int64_t>() > 0;
}

std::vector<std::int64_t> ConfigFile::integers(std::string_view key) const {
  std::vector<std::int64_t> result;
  if (const Json* value = value_at(object_, key)) {
    for (const Json& one : list_at(*value, key)) {
      result.push_back(size_of(one, key));
    }
  }
  return result;
}

std::pair<std::int64_t, std::int64_t> ConfigFile::pair(std::string_view key,
                                                       std::int64_t fallback) const {
  const Json* value = value_at(object_, key);
  if (value == nullptr || !value->is_array()) {
    const std::int64_t both = value == nullptr ? fallback : size_of(*value, key);
    return {both, both};
  }
  const auto sizes = integers(key);
  if (sizes.size() != 2) {
    throw FieldError(std::string(key), "expected one size or two");
  }
  return {sizes[0], sizes[1]};
}

std::int64_t ConfigFile::labels() const {
  constexpr std::int64_t kUsual = 2;
  if (const Json* names = value_at(object_, "id2label")) {
    if (!names->is_object() || names->empty()) {
      throw FieldError("id2label", "expected an object with a name for each class");
    }
    return static_cast<std::int64_t>(names->size());
  }
  return integer({"num_labels", "_num_labels"}, kUsual);
}

std::string ConfigFile::dtype() const {
  std::string name = text(has("dtype") ? "dtype" : "torch_dtype", "");
  constexpr std::string_view kTorch = "torch.";
  if (name.rfind(kTorch, 0) == 0) {
    name.erase(0, kTorch.size());
  }
  return name == "auto" ? "" : name;
}

std::string ConfigFile::brief() const {
  Json object = *object_;
  if (has("id2label")) {
    object["num_labels"] = labels();
  }
  object.erase("id2label");
  object.erase("label2id");
  return object.dump();
}

}  // namespace stepsim

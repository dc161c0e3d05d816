#include "costmodel/io/json_value.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace stepsim {

using Json = nlohmann::ordered_json;

JsonValue::JsonValue() : value_(std::make_unique<Json>()) {}
JsonValue::JsonValue(Json value) : value_(std::make_unique<Json>(std::move(value))) {}
JsonValue::JsonValue(const JsonValue& other) : value_(std::make_unique<Json>(*other.value_)) {}
JsonValue::JsonValue(JsonValue&& other) noexcept = default;
JsonValue& JsonValue::operator=(JsonValue other) noexcept {
  value_ = std::move(other.value_);
  return *this;
}
JsonValue::~JsonValue() = default;

bool JsonValue::operator==(const JsonValue& other) const {
  return *value_ == *other.value_;
}

}  // namespace stepsim

#pragma once

#include <memory>

#include <nlohmann/json_fwd.hpp>

namespace stepsim {

/// A JSON value as a member: headers that hold one need not read the JSON library's own header,
/// which takes over a second to compile. It starts as null; a copy is a copy of the whole value.
class JsonValue {
 public:
  JsonValue();
  JsonValue(nlohmann::ordered_json value);  // NOLINT(google-explicit-constructor): as a Json is.
  JsonValue(const JsonValue& other);
  JsonValue(JsonValue&& other) noexcept;
  JsonValue& operator=(JsonValue other) noexcept;
  ~JsonValue();

  [[nodiscard]] const nlohmann::ordered_json& operator*() const { return *value_; }
  [[nodiscard]] nlohmann::ordered_json& operator*() { return *value_; }
  [[nodiscard]] const nlohmann::ordered_json* operator->() const { return value_.get(); }
  [[nodiscard]] nlohmann::ordered_json* operator->() { return value_.get(); }
  bool operator==(const JsonValue& other) const;

 private:
  std::unique_ptr<nlohmann::ordered_json> value_;  ///< Null only after a move.
};

}  // namespace stepsim

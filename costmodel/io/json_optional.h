#pragma once

#include <optional>

#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"

namespace stepsim {

/// Returns the value as JSON, or null when there is none.
template <typename T>
[[nodiscard]] Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace stepsim

#pragma once

#include <initializer_list>
#include <optional>
#include <string>

namespace stepsim {

/// Why a key of the scenario cannot have its value.
struct KeyRefusal {
  bool holds = false;
  const char* key = "";
  std::string reason = {};
};

/// The first refusal that holds.
[[nodiscard]] inline std::optional<KeyRefusal> first_refusal(
    std::initializer_list<KeyRefusal> refusals) {
  for (const KeyRefusal& refusal : refusals) {
    if (refusal.holds) {
      return refusal;
    }
  }
  return std::nullopt;
}

}  // namespace stepsim

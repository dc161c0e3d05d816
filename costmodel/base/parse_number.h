#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "costmodel/base/trimmed.h"

namespace stepsim {

/// Returns the number that fills the whole text; nothing when the text is no number of this type.
template <typename Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

/// "12.5 us": 12.5 and "us"; of "12.5" the unit is empty.
struct NumberWithUnit {
  double number = 0;
  std::string unit;
};

/// Splits a text into a finite number and what stands behind it; nothing when it begins with no
/// number.
[[nodiscard]] inline std::optional<NumberWithUnit> parse_number_with_unit(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || !std::isfinite(value)) {
    return std::nullopt;
  }
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  return NumberWithUnit{value, std::string(trimmed(unit))};
}

}  // namespace stepsim

#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace stepsim {

/// Returns the number that fills the whole text; nothing when the text is no number of this type.
template <typename Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

}  // namespace stepsim

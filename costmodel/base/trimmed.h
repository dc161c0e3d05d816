#pragma once

#include <string_view>

namespace stepsim {

/// Returns the text without the blanks, tabs and line ends around it; the result views `text`.
[[nodiscard]] constexpr std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

}  // namespace stepsim

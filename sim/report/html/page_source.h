#pragma once

#include <span>
#include <string_view>

namespace stepsim {

/// The page's text around its data, in pieces.
struct PageSource {
  std::span<const std::string_view> before_data;
  std::span<const std::string_view> after_data;
};

/// As embed.py joined it; null in a build without d3.
[[nodiscard]] const PageSource* page_source();

}  // namespace stepsim

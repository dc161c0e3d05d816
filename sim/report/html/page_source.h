#pragma once

#include <span>
#include <string_view>

namespace stepsim {

/// The page's text before and after its data, in chunks that compilers accept as literals.
struct PageSource {
  std::span<const std::string_view> before_data;
  std::span<const std::string_view> after_data;
};

/// Returns the text that embed.py joined at build time; null in a build without d3.
[[nodiscard]] const PageSource* page_source();

}  // namespace stepsim

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stepsim {

/// Returns the columns that a text takes on a terminal: one a character, none for marks of paint.
[[nodiscard]] std::size_t display_width(std::string_view text);

/// Wraps a text to lines of at most `width` columns; a longer word gets a line of its own.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, std::size_t width);

/// Returns "a, b," and "c" for items that do not fit into one line of so many columns: a line ends
/// behind a comma, and no item is broken.
[[nodiscard]] std::vector<std::string> wrapped_list(const std::vector<std::string>& items,
                                                    std::size_t width);

}  // namespace stepsim

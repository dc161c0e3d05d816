#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stepsim {

/// Parses a list of numbers such as "0..3,8". The result is ascending and has no duplicates.
///
/// Args:
///     count: The valid numbers are 0 .. count - 1.
///     what: What the numbers select, in the plural, for messages: "ranks".
/// Raises InputError: the text is not such a list, or a number is out of range.
[[nodiscard]] std::vector<int> parse_selection(std::string_view text,
                                               int count,
                                               const std::string& what);

}  // namespace stepsim

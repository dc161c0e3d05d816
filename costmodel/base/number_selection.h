#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stepsim {

/// The numbers that a list such as "0..3,8" names: ascending, each once.
///
/// Args:
///     count: There are 0 .. count - 1.
///     what: Of what, in the plural, for messages: "ranks".
/// Raises InputError: no such list, or numbers that there are not.
[[nodiscard]] std::vector<int> parse_selection(std::string_view text,
                                               int count,
                                               const std::string& what);

}  // namespace stepsim

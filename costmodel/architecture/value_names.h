#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "costmodel/base/row_named.h"

namespace stepsim {

/// The values of an enumeration and their names.
template <typename Value, std::size_t Size>
using Names = std::array<std::pair<Value, std::string_view>, Size>;

/// Returns the name of a value; "?" for one that has none.
template <typename Value, std::size_t Size>
std::string_view name_in(const Names<Value, Size>& names, Value value) {
  const auto found =
      std::ranges::find_if(names, [value](const auto& entry) { return entry.first == value; });
  return found == names.end() ? "?" : found->second;
}

/// Returns the value of a name. Raises InputError, which lists the known names.
template <typename Value, std::size_t Size>
Value parse_in(const Names<Value, Size>& names, std::string_view what, std::string_view name) {
  return row_named(names, &std::pair<Value, std::string_view>::second, what, name).first;
}

}  // namespace stepsim

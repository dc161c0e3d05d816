#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {

/// Returns the row of a table whose name, as `name_of` tells it, is `name`. Raises InputError with
/// the text of unknown_name() where there is none.
template <typename Rows, typename NameOf>
[[nodiscard]] const auto& row_named(const Rows& rows,
                                    NameOf name_of,
                                    std::string_view what,
                                    std::string_view name,
                                    Lookup lookup = Lookup::None) {
  const auto found = std::ranges::find_if(
      rows, [&](const auto& row) { return std::invoke(name_of, row) == name; });
  if (found == std::end(rows)) {
    const auto known =
        mapped(rows, [&](const auto& row) { return std::string{std::invoke(name_of, row)}; });
    throw InputError(unknown_name(what, name, known), lookup);
  }
  return *found;
}

/// Returns the value of an enumeration whose names stand in the order of its values. Raises
/// InputError like row_named().
template <typename Enum>
[[nodiscard]] Enum enum_named(std::span<const std::string> names,
                              std::string_view what,
                              std::string_view name) {
  return static_cast<Enum>(&row_named(names, std::identity(), what, name) - names.data());
}

}  // namespace stepsim

#pragma once

#include <utility>
#include <vector>

#include "costmodel/io/json_file.h"

namespace stepsim {

/// Returns the number itself. Raises std::domain_error unless it is finite: JSON has no infinities,
/// and the library would print null.
[[nodiscard]] double finite(double value);

/// An array of finite numbers.
[[nodiscard]] Json numbers_json(const std::vector<double>& values);

/// [lo, hi], as JsonReader::range() reads it.
[[nodiscard]] Json range_json(const std::pair<double, double>& range);

}  // namespace stepsim

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "costmodel/io/csv_table.h"
#include "sim/predict/prediction.h"

namespace stepsim::published {

/// Path of a file in scenarios/published.
[[nodiscard]] std::string published_file(const std::string& name);

using Overrides = std::vector<std::string>;

/// The step without noise and with timelines; of the first policy when none is named.
[[nodiscard]] Prediction predicted(const std::string& scenario,
                                   const Overrides& overrides,
                                   const std::string& policy = "");
/// Mean step time in milliseconds.
[[nodiscard]] double predicted_ms(const std::string& scenario,
                                  const Overrides& overrides,
                                  const std::string& policy = "");

/// The 90 % interval of the mean step time in milliseconds.
[[nodiscard]] std::pair<double, double> predicted_interval(const std::string& scenario,
                                                           const Overrides& overrides,
                                                           const std::string& policy = "");

/// A cell as a number. Raises InputError with its place.
[[nodiscard]] double number(const CsvTable& table, std::size_t row, CsvTable::Column column);

}  // namespace stepsim::published

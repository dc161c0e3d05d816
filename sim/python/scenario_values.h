#pragma once

#include <string>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

#include "sim/scenario/scenario.h"
#include "sim/scenario/setting.h"

namespace stepsim {

/// Keys and Python's values.
using PythonSettings = std::vector<std::pair<std::string, pybind11::object>>;

/// The value of a key: texts are read as `--set KEY=TEXT` reads them; numbers, lists and dicts are
/// taken as they are; "data.lengths" takes an int64 array, too. Raises TypeError and ValueError.
[[nodiscard]] Setting setting_of(const std::string& key, const pybind11::object& value);
[[nodiscard]] std::vector<Setting> settings_of(const PythonSettings& settings);

}  // namespace stepsim

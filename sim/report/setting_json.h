#pragma once

#include <string>

#include "costmodel/io/json_file.h"
#include "sim/scenario/setting.h"

namespace stepsim {

/// The value as data: a number in the key's unit (bytes, seconds, bytes per second), a truth value,
/// a list, an object, or a text where it is no number.
[[nodiscard]] Json setting_json(const Setting& setting);

/// "B", "s" or "B/s"; empty where the key's values have no unit.
[[nodiscard]] std::string unit_text(const std::string& key);

}  // namespace stepsim

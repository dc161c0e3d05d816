#pragma once

#include <string>
#include <utility>

#include "sim/points/exact_json.h"
#include "sim/scenario/setting.h"

namespace stepsim {

template <>
inline void write_exact(const Setting& value, std::string& text) {
  write_exact(std::pair(value.key(), value.value_text()), text);
}

template <>
inline void read_exact(const Json& json, Setting& value) {
  std::pair<std::string, std::string> written;
  read_exact(json, written);
  value = Setting(std::move(written.first), std::move(written.second));
}

}  // namespace stepsim

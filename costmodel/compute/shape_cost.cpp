#include "costmodel/compute/shape_cost.h"

#include <array>

namespace stepsim {

std::span<const std::string> shape_key_names() {
  static const std::array<std::string, 5> kNames = {
      "samples_length", "length", "samples", "tokens", "largest"};
  return kNames;
}

std::span<const std::string> eviction_names() {
  static const std::array<std::string, 3> kNames = {"least_recent", "oldest", "none"};
  return kNames;
}

std::span<const std::string> compile_mode_names() {
  static const std::array<std::string, 4> kNames = {"none", "static", "automatic", "dynamic"};
  return kNames;
}

}  // namespace stepsim

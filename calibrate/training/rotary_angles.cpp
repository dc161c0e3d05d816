#include "calibrate/training/rotary_angles.h"

#include <cmath>

namespace stepsim {

std::vector<float> rotary_angles(std::int64_t positions, std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  std::vector<float> table(static_cast<std::size_t>(2 * positions * half));
  for (std::int64_t position = 0; position < positions; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
      const double angle = static_cast<double>(position) * std::pow(10000.0, exponent);
      const auto at = static_cast<std::size_t>(position * half + i);
      table[at] = static_cast<float>(std::cos(angle));
      table[static_cast<std::size_t>(positions * half) + at] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace stepsim

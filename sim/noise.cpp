#include "sim/noise.h"

#include <cmath>

namespace stepsim {

double NoiseDraws::uniform() {
  return static_cast<double>(generator_() >> 11) * 0x1p-53;
}

double NoiseDraws::normal() {
  // Box-Muller; u in (0, 1].
  const double u = (static_cast<double>(generator_() >> 11) + 1.0) * 0x1p-53;
  const double v = uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
}

double NoiseDraws::factor(double sd) {
  return std::exp(sd * normal());
}

double NoiseDraws::from(const std::vector<double>& quantiles) {
  if (quantiles.empty()) {
    return 1.0;
  }
  const double position = uniform() * static_cast<double>(quantiles.size() - 1);
  const auto low = static_cast<std::size_t>(position);
  return quantiles[low] +
         (position - static_cast<double>(low)) * (quantiles[low + 1] - quantiles[low]);
}

}  // namespace stepsim

#pragma once

#include <vector>

namespace stepsim {

/// The quantile q in [0, 1] with linear interpolation between order statistics; 0 when empty.
[[nodiscard]] double quantile(std::vector<double> values, double q);

}  // namespace stepsim

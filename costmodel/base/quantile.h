#pragma once

#include <vector>

namespace stepsim {

/// Returns the quantile q in [0, 1] with linear interpolation between order statistics; 0 for no
/// values.
[[nodiscard]] double quantile(std::vector<double> values, double q);

}  // namespace stepsim

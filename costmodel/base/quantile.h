#pragma once

#include <span>
#include <vector>

namespace stepsim {

/// Returns the quantile q in [0, 1] with linear interpolation between order statistics; 0 for no
/// values.
[[nodiscard]] double quantile(std::vector<double> values, double q);

/// Returns that of values that are in ascending order.
[[nodiscard]] double sorted_quantile(std::span<const double> values, double q);

/// Returns the quantile q in (0, 1) of Student's distribution with so many degrees of freedom, and
/// of the standard normal one.
[[nodiscard]] double student_quantile(double freedom, double q);
[[nodiscard]] double normal_quantile(double q);

}  // namespace stepsim

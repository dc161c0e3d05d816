#pragma once

#include <vector>

namespace stepsim {

/// Value below which the fraction `q` of the values lies, linear between neighbours. Not empty.
[[nodiscard]] double quantile(std::vector<double> values, double q);
[[nodiscard]] double median(std::vector<double> values);

/// Mean without the largest values, the fraction `left_out` of them (rounded down). Not empty.
[[nodiscard]] double trimmed_mean(std::vector<double> values, double left_out);

/// 1.4826 * median absolute deviation from the median: the standard deviation of normal noise,
/// untouched by a few outliers. Not empty.
[[nodiscard]] double robust_deviation(const std::vector<double>& values);

}  // namespace stepsim

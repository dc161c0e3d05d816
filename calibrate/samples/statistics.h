#pragma once

#include <vector>

#include "costmodel/base/quantile.h"

namespace stepsim {

/// Not empty.
[[nodiscard]] double median(std::vector<double> values);

/// Mean without the largest values, the fraction `left_out` of them (rounded down). Not empty.
[[nodiscard]] double trimmed_mean(std::vector<double> values, double left_out);

/// 1.4826 * median absolute deviation from the median: the standard deviation of normal noise,
/// untouched by a few outliers. Not empty.
[[nodiscard]] double robust_deviation(const std::vector<double>& values);

}  // namespace stepsim

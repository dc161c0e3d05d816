#pragma once

#include <vector>

#include "costmodel/base/quantile.h"

namespace stepsim {

/// The median. `values` is not empty.
[[nodiscard]] double median(std::vector<double> values);

/// The mean without the largest values: the fraction `left_out` of them, rounded down, is left out.
/// `values` is not empty.
[[nodiscard]] double trimmed_mean(std::vector<double> values, double left_out);

/// 1.4826 times the median absolute deviation from the median: the standard deviation if the noise
/// is normal, but a few outliers do not change it. `values` is not empty.
[[nodiscard]] double robust_deviation(const std::vector<double>& values);

}  // namespace stepsim

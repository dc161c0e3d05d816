#pragma once

#include <cstddef>
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

/// By what the standard error of a mean of so few values is multiplied before it is used as a
/// normal distribution's deviation: its 90 % interval is then Student's, since the error was itself
/// told by so few. Values: at least 2.
[[nodiscard]] double student_widening(std::size_t values);

/// 41 evenly spaced quantiles of the values over the mean of draws between them. The last is chosen
/// so that the draws above the one before it have the mean of the values there: between the two
/// largest quantiles there is a long thin tail. `values` is not empty, its mean above 0.
[[nodiscard]] std::vector<double> quantiles_over_mean(const std::vector<double>& values);

/// About `count` of the places 0 .. size - 1, ascending, drawn evenly but not in step with the
/// order of what lies there; all of them if there are no more.
[[nodiscard]] std::vector<std::size_t> thinned_places(std::size_t size, std::size_t count);

}  // namespace stepsim

#pragma once

#include <vector>

namespace stepsim {

/// Solves non-negative least squares of the relative residuals: finds the coefficients c >= 0 that
/// minimise the sum over rows of (weights[i] (sum_j c[j] rows[i][j] / y[i] - 1))^2.
///
/// Args:
///     rows: [point][feature], finite and non-negative, the same width everywhere.
///     y: [point], positive.
///     weights: [point], not negative; empty: 1 everywhere.
/// Returns: [feature]; a feature that is zero everywhere gets 0.
/// Method: columns scaled to maximum 1, then the active sets of Lawson and Hanson, "Solving Least
/// Squares Problems" (1974), chapter 23.
[[nodiscard]] std::vector<double> relative_nnls(const std::vector<std::vector<double>>& rows,
                                                const std::vector<double>& y,
                                                const std::vector<double>& weights = {});

/// The sum of coefficient * feature.
[[nodiscard]] double dot(const std::vector<double>& coefficients, const std::vector<double>& row);

}  // namespace stepsim

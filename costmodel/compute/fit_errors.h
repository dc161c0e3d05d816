#pragma once

#include <algorithm>
#include <cmath>
#include <optional>

namespace stepsim {

/// Errors on measurements that the fit did not see, as fractions of the time. An error that could
/// not be estimated is absent.
struct FitErrors {
  std::optional<double> random;  ///< Mean |error| where scattered points are held out.
  std::optional<double> block;   ///< Mean |error| where a block of neighbours is held out.
  /// Mean |error| where the upper half of the sizes is predicted from the lower.
  std::optional<double> beyond;
  std::optional<double> bias;  ///< Signed error of the sum over the held-out points.

  bool operator==(const FitErrors&) const = default;
};

/// The mean absolute size of a normal error over its standard deviation.
inline constexpr double kMeanAbsoluteOfDeviation = 0.79788456080286541;  // sqrt(2 / pi)

/// The standard deviation of a normal error whose mean absolute size is `error`.
[[nodiscard]] constexpr double sd_of_mean_absolute(double error) {
  return error / kMeanAbsoluteOfDeviation;
}

/// The mean absolute size of a normal error whose standard deviation is `sd`.
[[nodiscard]] constexpr double mean_absolute_of_sd(double sd) {
  return sd * kMeanAbsoluteOfDeviation;
}

/// The part of a fit's error that all its uses share: the held-out bias, and the scatter of single
/// points over the square root of their number. When the bias is unknown, the whole random error
/// counts as shared.
[[nodiscard]] inline double shared_error(const FitErrors& errors, int samples) {
  const double scattered =
      errors.random.value_or(0) / std::sqrt(std::max(1.0, static_cast<double>(samples)));
  return std::hypot(errors.bias.value_or(errors.random.value_or(0)), scattered);
}

}  // namespace stepsim

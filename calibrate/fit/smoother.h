#pragma once

#include <span>
#include <vector>

namespace stepsim {

/// A smooth curve through noisy points, by Gaussian process regression of y over x.
///
/// The covariance of two points is a sum of a constant (the curve's level), a slow part and a quick
/// part over |log x - log x'|, and, where the work is done in blocks of `step`, a part that is
/// equal within a block and fades over neighbouring ones. Far from all points the curve returns to
/// y = 0, so y should be the logarithm of a ratio to some first estimate. Source: Rasmussen and
/// Williams, "Gaussian Processes for Machine Learning" (2006), 2.2.
class Smoother {
 public:
  /// Args:
  ///     x: [point], positive.
  ///     y: [point].
  ///     noise: [point] Standard deviation of y, positive.
  ///     step: Width of a block in x; 0 = no blocks.
  Smoother(std::vector<double> x,
           std::span<const double> y,
           std::span<const double> noise,
           double step);

  [[nodiscard]] double at(double x) const;

 private:
  [[nodiscard]] double covariance(double x, double log_x, std::size_t point) const;

  std::vector<double> x_;
  std::vector<double> log_x_;
  std::vector<double> weights_;  ///< [point] What its covariance with x is multiplied by.
  double step_;
};

}  // namespace stepsim

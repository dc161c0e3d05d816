#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace stepsim {

/// The coefficients of a nonlinear least-squares fit with priors, taken to be normal around the
/// best fit.
struct Posterior {
  std::vector<double> mode;                     ///< [coefficient] The best fit.
  std::vector<std::vector<double>> covariance;  ///< [coefficient][coefficient]
};

/// A sum of squared residuals near some coefficients, as Gauss and Newton have it. Residuals are in
/// standard deviations, those of the priors included.
struct NormalEquations {
  double squares = 0;                       ///< Their sum.
  std::vector<std::vector<double>> normal;  ///< [coefficient][coefficient] J'J.
  std::vector<double> gradient;             ///< [coefficient] J' times the residuals.
};

/// A sum of squares to be minimised. The derivatives J are central differences over
/// kDerivativeStep to either side.
struct LeastSquares {
  std::function<double(std::span<const double>)> squares;
  std::function<NormalEquations(std::span<const double>)> normal_equations;
};

inline constexpr double kDerivativeStep = 1e-4;

/// Minimises the sum of squared residuals by Levenberg's and Marquardt's method (Marquardt, SIAM J.
/// Appl. Math. 11 (1963) 431). The covariance is the inverse of J'J, J being the derivatives at the
/// best fit. Priors on all coefficients keep it finite.
[[nodiscard]] Posterior fit_posterior(const LeastSquares& problem, std::vector<double> start);

/// Returns coefficients drawn from the posterior, in pairs that lie opposite each other around the
/// mode, so that the mean of all draws is the mode: [draw][coefficient]. `count` is even.
[[nodiscard]] std::vector<std::vector<double>> posterior_draws(const Posterior& posterior,
                                                               int count,
                                                               std::uint64_t seed);

/// Returns the covariance after one more observation, whose derivatives by the coefficients are
/// `gradient` and whose standard deviation is `deviation`.
[[nodiscard]] std::vector<std::vector<double>> updated_covariance(
    const std::vector<std::vector<double>>& covariance,
    std::span<const double> gradient,
    double deviation);

/// Returns what the data tell: the standard deviation of each coefficient under its own prior while
/// those of all others are ten times as wide. `priors`: [coefficient] standard deviations.
[[nodiscard]] std::vector<double> deviations_by_data(
    const std::vector<std::vector<double>>& covariance, std::span<const double> priors);

/// Returns the variance of a quantity with this gradient.
[[nodiscard]] double variance_along(const std::vector<std::vector<double>>& covariance,
                                    std::span<const double> gradient);

}  // namespace stepsim

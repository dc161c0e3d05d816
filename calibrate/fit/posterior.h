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

/// Residuals in standard deviations, those of the priors included, at these coefficients.
using Residuals = std::function<std::vector<double>(std::span<const double>)>;

/// Minimises the sum of squared residuals by Levenberg's and Marquardt's method (Marquardt, SIAM J.
/// Appl. Math. 11 (1963) 431), with derivatives by central differences. The covariance is the
/// inverse of J'J, J being the derivatives at the best fit. Priors on all coefficients keep it
/// finite. Raises std::logic_error: fewer residuals than coefficients.
[[nodiscard]] Posterior fit_posterior(const Residuals& residuals, std::vector<double> start);

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

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <boost/random/normal_distribution.hpp>

namespace stepsim {

/// A log-normal factor.
struct LogNormal {
  double log_median = 0;
  double log_sd = 0;  ///< 0: the factor is exp(log_median).

  /// Its value where a standard normal stands at `score`.
  [[nodiscard]] double at(double score) const { return std::exp(log_median + log_sd * score); }
};

/// With mean 1 and this standard deviation: noise leaves means as they are.
[[nodiscard]] LogNormal of_mean_one(double sd);
/// With median 1 and this standard deviation of its logarithm.
[[nodiscard]] LogNormal of_median_one(double log_sd);

/// Noise. The distributions of <random> differ between libraries; Boost's do not.
class NoiseDraws {
 public:
  explicit NoiseDraws(std::uint64_t seed) : generator_(seed) {}

  /// Uniform in [0, 1).
  double uniform();
  /// Standard normal.
  double normal();
  double factor(const LogNormal& factor) { return factor.at(normal()); }
  /// A draw from a distribution given by evenly spaced quantiles; 1 when there are none.
  double from(const std::vector<double>& quantiles);

 private:
  std::mt19937_64 generator_;
  boost::random::normal_distribution<double> normal_;
};

/// Returns the seed of a draw's noise: the golden ratio keeps the seeds far apart.
[[nodiscard]] constexpr std::uint64_t seed_of_draw(std::uint64_t seed, std::size_t draw) {
  constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
  return seed + kGoldenRatio * (draw + 1);
}

/// Evenly spaced quantiles, scaled so that draws between them have the mean 1.
[[nodiscard]] std::vector<double> of_mean_one(std::vector<double> quantiles);

/// The value of evenly spaced quantiles where a standard normal stands at `score`; 1 when there are
/// none.
[[nodiscard]] double at_score(const std::vector<double>& quantiles, double score);

}  // namespace stepsim

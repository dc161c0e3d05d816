#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <boost/random/normal_distribution.hpp>

namespace stepsim {

/// Noise. The distributions of <random> differ between libraries; Boost's do not.
class NoiseDraws {
 public:
  explicit NoiseDraws(std::uint64_t seed) : generator_(seed) {}

  /// Uniform in [0, 1).
  double uniform();
  /// Standard normal.
  double normal();
  /// A factor with median 1 and relative spread `sd`; exactly 1 without spread.
  double factor(double sd);
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

/// The value of evenly spaced quantiles where a standard normal stands at `score`; 1 when there are
/// none.
[[nodiscard]] double at_score(const std::vector<double>& quantiles, double score);

}  // namespace stepsim

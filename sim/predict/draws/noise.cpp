#include "sim/predict/draws/noise.h"

#include <algorithm>
#include <cmath>

namespace stepsim {
namespace {

/// Between the quantiles at `place`, 0 .. 1.
double at_place(const std::vector<double>& quantiles, double place) {
  const double position = place * static_cast<double>(quantiles.size() - 1);
  const auto low = std::min(static_cast<std::size_t>(position), quantiles.size() - 2);
  return quantiles[low] +
         (position - static_cast<double>(low)) * (quantiles[low + 1] - quantiles[low]);
}

}  // namespace

LogNormal of_mean_one(double sd) {
  // The mean of a log-normal is exp(log_median + log_sd^2 / 2), its variance over the square of the
  // mean exp(log_sd^2) - 1.
  const double log_variance = std::log1p(sd * sd);
  return {-log_variance / 2, std::sqrt(log_variance)};
}

LogNormal of_median_one(double log_sd) {
  return {0, log_sd};
}

std::vector<double> of_mean_one(std::vector<double> quantiles) {
  double mean = 0;
  for (std::size_t i = 0; i + 1 < quantiles.size(); ++i) {
    mean += (quantiles[i] + quantiles[i + 1]) / 2 / static_cast<double>(quantiles.size() - 1);
  }
  for (double& quantile : quantiles) {
    quantile /= mean;
  }
  return quantiles;
}

double NoiseDraws::uniform() {
  return static_cast<double>(generator_() >> 11) * 0x1p-53;
}

double NoiseDraws::normal() {
  return normal_(generator_);
}

double NoiseDraws::from(const std::vector<double>& quantiles) {
  return quantiles.empty() ? 1.0 : at_place(quantiles, uniform());
}

double at_score(const std::vector<double>& quantiles, double score) {
  constexpr double kRootHalf = 0.70710678118654752;
  return quantiles.empty() ? 1.0 : at_place(quantiles, 0.5 * std::erfc(-score * kRootHalf));
}

}  // namespace stepsim

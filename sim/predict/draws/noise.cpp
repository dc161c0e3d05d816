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

double NoiseDraws::uniform() {
  return static_cast<double>(generator_() >> 11) * 0x1p-53;
}

double NoiseDraws::normal() {
  return normal_(generator_);
}

double NoiseDraws::factor(double sd) {
  return std::exp(sd * normal());
}

double NoiseDraws::from(const std::vector<double>& quantiles) {
  return quantiles.empty() ? 1.0 : at_place(quantiles, uniform());
}

double at_score(const std::vector<double>& quantiles, double score) {
  constexpr double kRootHalf = 0.70710678118654752;
  return quantiles.empty() ? 1.0 : at_place(quantiles, 0.5 * std::erfc(-score * kRootHalf));
}

}  // namespace stepsim

#include "sim/predict/draws/jitter.h"

#include <cmath>

namespace stepsim {
namespace {

constexpr double kFarthest = 7;  // Standard deviations.

}  // namespace

double Jitter::factor(NoiseDraws& noise, double common_score) const {
  if (log_normal.log_sd == 0 && quantiles.empty()) {
    return 1;
  }
  if (correlation == 0) {
    return quantiles.empty() ? noise.factor(log_normal) : noise.from(quantiles);
  }
  const double score =
      std::sqrt(correlation) * common_score + std::sqrt(1 - correlation) * noise.normal();
  return quantiles.empty() ? log_normal.at(score) : at_score(quantiles, score);
}

double Jitter::least() const {
  return quantiles.empty() ? log_normal.at(-kFarthest) : quantiles.front();
}

double Jitter::most() const {
  return quantiles.empty() ? log_normal.at(kFarthest) : quantiles.back();
}

}  // namespace stepsim

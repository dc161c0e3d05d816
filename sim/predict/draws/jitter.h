#pragma once

#include <vector>

#include "sim/predict/draws/noise.h"

namespace stepsim {

/// How much longer than it is priced a rank's work takes in one step, as a factor.
struct Jitter {
  LogNormal log_normal;           ///< Where there are no quantiles.
  std::vector<double> quantiles;  ///< Evenly spaced; empty: the factor is log-normal.
  double correlation = 0;         ///< Between the ranks of a step.

  /// Draws what the ranks of a step have in common; 0, and nothing drawn, where that is nothing.
  [[nodiscard]] double common_score(NoiseDraws& noise) const {
    return correlation > 0 ? noise.normal() : 0;
  }
  /// Draws the factor of one rank in a step with this common_score().
  [[nodiscard]] double factor(NoiseDraws& noise, double common_score) const;

  /// The smallest and the largest factor: of a log-normal one seven standard deviations away, which
  /// no run will ever draw.
  [[nodiscard]] double least() const;
  [[nodiscard]] double most() const;
};

}  // namespace stepsim

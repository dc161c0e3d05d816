#pragma once

#include <span>
#include <vector>

#include "sim/prediction.h"

namespace stepsim {

/// The quantile q in [0, 1] with linear interpolation between order statistics; 0 when empty.
[[nodiscard]] double quantile(std::vector<double> values, double q);
[[nodiscard]] double mean(std::span<const double> values);
/// Population standard deviation (ddof = 0).
[[nodiscard]] double population_std(std::span<const double> values);

/// Fills the token, throughput, spread and part figures from the rows of the steady steps.
/// Formulas: the token-skew lab's metrics (ratio of means for padding; useful tokens over the
/// slowest rank's mean step time for throughput).
void summarise(std::span<const RankStepResult> rows,
               int ranks,
               int warmup_steps,
               PredictionSummary& summary);

}  // namespace stepsim

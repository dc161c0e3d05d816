#pragma once

#include <span>

#include "costmodel/records/profile.h"

namespace stepsim {

/// What one rank's compute took in one recorded step, over what was fitted.
struct ComputeRatio {
  int step = 0;  ///< In order of recording; all ranks of a step share it.
  double ratio = 1;
};

/// Jitter: quantiles of single steps. Its correlation: how much of it the ranks of a step have in
/// common. Drift: how far the mean of a run as long as the recording, right after it, is off if the
/// machine's speed walks at random: twice what the means of eighths of the recording differ beyond
/// what their jitter makes them.
///
/// Args:
///     ratios: With mean 1; at least two.
///     steps: One more than the last step.
[[nodiscard]] NoiseProfile fit_step_noise(std::span<const ComputeRatio> ratios, int steps);

/// Moves the spread of single steps to that of the mean of a run of `steps` steps.
void keep_spread_of_runs(std::span<const ComputeRatio> ratios, int steps, NoiseProfile& noise);

}  // namespace stepsim

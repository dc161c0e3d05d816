#pragma once

#include <span>
#include <string>
#include <vector>

#include "costmodel/records/profile.h"

namespace stepsim {

/// One rank's compute time in one recorded step, over the fitted one.
struct ComputeRatio {
  int step = 0;  ///< Counts in order of recording; all ranks of a step share the number.
  double ratio = 1;
};

/// How far off the mean of a run as long as the recording is, right after it, if the machine's
/// speed walks at random: twice the amount by which the means of eighths of the recording differ
/// beyond what their jitter explains. `ratios` have the mean 1; `steps`: one more than the number
/// of the last step.
[[nodiscard]] double drift_of(std::span<const ComputeRatio> ratios, int steps);

/// Fits the noise of recorded steps.
///
/// The jitter is kept as quantiles of single steps; the correlation says how much of it the ranks
/// of a step have in common; the drift is drift_of().
///
/// Args:
///     ratios: At least two, with the mean 1.
///     steps: One more than the number of the last step.
[[nodiscard]] NoiseProfile fit_step_noise(std::span<const ComputeRatio> ratios, int steps);

/// How much slower each rank computes than the usual one (the lower median) on the same batches,
/// where that is so all along: by more than 4 %, by four times what the eighths of the recording
/// differ, and in both of its halves; 1 for all others. Empty where all are alike, or steps are
/// few. `ranks`: [as ratios]
[[nodiscard]] std::vector<double> unequal_ranks(std::span<const ComputeRatio> ratios,
                                                std::span<const int> ranks,
                                                int world_size);

/// Says which ranks had steps that took much longer than others of their size, and how much; empty
/// where hardly any did. `ranks`: [as ratios]. `slowed_by_others`: how much other programs
/// slowed all steps (1: not at all); where that is as much, they are no riddle.
[[nodiscard]] std::string slow_steps_text(std::span<const ComputeRatio> ratios,
                                          std::span<const int> ranks,
                                          bool on_gpu,
                                          double slowed_by_others);

/// Books the spread of single steps as drift: as that of the mean of a run of `steps` steps.
void keep_spread_of_runs(std::span<const ComputeRatio> ratios, int steps, NoiseProfile& noise);

}  // namespace stepsim

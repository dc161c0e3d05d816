#pragma once

#include "calibrate/import/step_times/step_time_fitter.h"

namespace stepsim {

/// Noise before any row was seen, as means of logarithms' deviations. `run`: links that another job
/// was fitted to tell the second.
struct NoisePrior {
  double compute = 0.02;
  double run = 0.07;
};

/// Finds the noise that makes the fit's residuals most likely, and fits again with it.
[[nodiscard]] StepTimeFit fit_with_noise(const StepTimeTable& table,
                                         const StepTimeFitter& fitter,
                                         const NoisePrior& prior);

}  // namespace stepsim

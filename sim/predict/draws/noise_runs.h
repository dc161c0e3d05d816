#pragma once

#include "costmodel/base/progress_callback.h"
#include "sim/predict/prediction.h"
#include "sim/predict/run/run.h"

namespace stepsim {

struct NoiseRunOptions {
  int runs = 100;       ///< Fewer are made where that would take too long, but 20 at least.
  bool paired = false;  ///< Fills in Prediction::paired_step_ms.
  /// Plain steps that each run plays at most, evenly spaced steady ones whose times are scaled by
  /// the exact mean of all steps over theirs; 0: all.
  int most_steps = 0;
  int threads = 0;  ///< 0: one a core.
  ProgressCallback on_progress = {};
};

/// Plays each draw under jitter alone, which the step statistics and all means are of, and under
/// jitter, fit errors, drift and a common error, whose means give the 90 % interval. Sets all times
/// of the prediction, which has those of the run without noise.
/// `step_ms`: the steady steps without noise. Raises InputError: the simulated clock passes
/// kTimeLimit.
void add_noise_runs(Run& run,
                    const NoiseRunOptions& options,
                    const std::vector<double>& step_ms,
                    Prediction& prediction);

/// How many of the wanted runs are made where the recurrence plays that many micro-batches in each.
[[nodiscard]] int affordable_plain_runs(double batches, int wanted);

}  // namespace stepsim

#pragma once

#include <vector>

#include "costmodel/base/progress_callback.h"
#include "sim/predict/draws/draw_player.h"

namespace stepsim {

/// What runs with noise came to.
struct PlayedDraws {
  StepTimeTally jitter;                      ///< All steady steps of the first run of each draw.
  std::vector<double> longest_ms;            ///< [draw] The longest steady step of its first run.
  std::vector<std::vector<double>> mean_ms;  ///< [run][draw] Mean steady step.

  /// Multiplies all times.
  void scale(double factor);
};

/// Plays the runs of each draw. The jitter of a draw has a generator of its own, so that it does
/// not depend on how many numbers another draw took. `threads`: 0 is one a core, where that is
/// worth it; the result does not depend on it.
/// Plain runs play `steps`, the first one among them; all others play every step.
/// Raises InputError: the simulated clock passes kTimeLimit.
[[nodiscard]] PlayedDraws play_draws(Run& run,
                                     const std::vector<Draw>& draws,
                                     const std::vector<int>& steps,
                                     int threads,
                                     const ProgressCallback& on_progress);

}  // namespace stepsim

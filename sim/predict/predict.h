#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "costmodel/model/memory.h"
#include "costmodel/records/profile.h"
#include "sim/predict/counterfactual.h"
#include "sim/predict/memory_need.h"
#include "sim/predict/prediction.h"
#include "sim/predict/run/jobs.h"
#include "sim/predict/scenario_profile.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

struct PredictOptions {
  int noise_runs = 100;           ///< Runs with the profile's noise and errors drawn; 0: none.
  int most_noisy_steps = 0;       ///< NoiseRunOptions::most_steps.
  bool paired_draws = false;      ///< Fills in Prediction::paired_step_ms, where there is noise.
  bool training_effects = false;  ///< Fills in Prediction::training.
  /// Whether Prediction::steps are kept, which take much memory for many steps and ranks. They
  /// always are where new shapes cost something.
  KeptRows rows = KeptRows::Rows;
  bool keep_timelines = false;
  std::optional<int> timeline_of_step = {};  ///< Keeps this step's timeline alone.
  bool memory_curve = false;                 ///< Fills in Prediction::memory_curve.
  bool engine = false;  ///< The engine plays the run without noise, even where the recurrence can.
  std::optional<Counterfactual> counterfactual = {};
  int threads = 0;  ///< For the noise runs; 0: one a core. The result does not depend on it.
  ProgressCallback on_progress = {};
  /// Is told the wall-clock seconds that planning one epoch took.
  std::function<void(double)> on_planned = {};
};

/// The step times of one policy of a scenario, before running it.
///
/// The summary is over steps warmup_steps.., with the step-to-step noise of the profile; the
/// interval adds the held-out errors of its costs (one factor per class, drawn), the intervals of
/// its interference, its drift and, for prices of other models, what these have in common.
/// Raises InputError: a cost that the profile lacks or refuses; see check_memory().
[[nodiscard]] Prediction predict(const Job& job, const PredictOptions& options);
[[nodiscard]] Prediction predict(const Scenario& scenario,
                                 const BatchingPolicy& policy,
                                 const Profile& profile,
                                 const PredictOptions& options);

/// What the policy's batches need beyond the memory of a rank; nothing where all fit. Raises as
/// predict().
[[nodiscard]] Bytes missing_memory(const Scenario& scenario,
                                   const BatchingPolicy& policy,
                                   const Profile& profile);

/// Whether all batches of the policy fit into the memory of a rank.
[[nodiscard]] inline bool fits_into_memory(const Scenario& scenario,
                                           const BatchingPolicy& policy,
                                           const Profile& profile) {
  return missing_memory(scenario, policy, profile).value() == 0;
}

/// Predicts every policy of the scenario, in its order. `options.on_progress` is told the share of
/// all of them.
[[nodiscard]] std::vector<Prediction> predict_policies(Jobs& jobs, const PredictOptions& options);

/// What the scenario keeps on the device.
[[nodiscard]] MemoryOptions memory_options(const Scenario& scenario);

}  // namespace stepsim

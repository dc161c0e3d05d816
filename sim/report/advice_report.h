#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"
#include "sim/study/blame.h"
#include "sim/study/recommendation.h"

namespace stepsim {

/// One bucket cap of the best policy.
struct CapStep {
  Bytes cap;
  double step_ms = 0;      ///< Without noise; 0: not priced.
  std::string not_priced;  ///< Why the profile cannot price it; else empty.
};

/// The bucket cap that is worth setting, if any is.
struct CapAdvice {
  std::vector<CapStep> caps;  ///< Ascending; one when the cap has no effect.
  Bytes own;                  ///< The scenario's.
  Bytes best;                 ///< The shortest step; of equal ones the own.
  Gain gain;                  ///< Of the best over the own.
};

/// What `stepsim advise` found out about a training.
struct Advice {
  std::vector<Prediction> predictions;   ///< [policy]
  std::string recorded;                  ///< The policy that runs now; the first where unknown.
  CapAdvice caps;                        ///< Of the best policy.
  Blame blame;                           ///< Of the recorded policy.
  std::int64_t samples = 0;              ///< Of the whole data set.
  std::optional<double> price_per_hour;  ///< Of all ranks together, in any currency.
};

/// One epoch of a policy.
struct EpochTime {
  double steps = 0;
  double hours = 0;
};

/// The steps and the time that the whole data set takes.
[[nodiscard]] EpochTime epoch_time(const Scenario& scenario,
                                   const Prediction& prediction,
                                   std::int64_t samples);

/// The answer in five lines, each with its name in front: the step, the best policy, the bucket
/// size, what the policy changes, an epoch.
[[nodiscard]] std::vector<std::string> advice_lines(const Scenario& scenario, const Advice& advice);

/// {"format": "stepsim-advice/1", "answer", "predictions", "recommendation", "sweep", "blame",
/// "epochs"}.
[[nodiscard]] Json advice_json(const Scenario& scenario, const Advice& advice);

}  // namespace stepsim

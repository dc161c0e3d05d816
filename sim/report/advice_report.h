#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/records/profile.h"
#include "costmodel/terminal/screen.h"
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

/// One way to train: as now, or with another bucket cap, other batches, or both.
struct AdviceOption {
  std::string change;  ///< "now", "other bucket cap", "other batches" or "both".
  Bytes cap;
  Prediction prediction;  ///< With the policy's name.
  Gain gain;              ///< Over now.
};

/// What `stepsim advise` found out about a training.
struct Advice {
  std::vector<Prediction> predictions;   ///< [policy]
  std::string recorded;                  ///< The policy that runs now; the first where unknown.
  double recorded_ms = 0;                ///< Its mean step as it was recorded.
  StallNoise stalls;                     ///< What now and then holds up a step, in all figures.
  CapAdvice caps;                        ///< Of the best policy.
  std::vector<AdviceOption> options;     ///< What runs now first; only what differs from it.
  Blame blame;                           ///< Of the recorded policy.
  std::int64_t samples = 0;              ///< Of the whole data set.
  double mean_length = 0;                ///< Tokens of a sample.
  std::optional<double> price_per_hour;  ///< Of all ranks together, in any currency.
};

/// One epoch of a policy.
struct EpochTime {
  double steps = 0;
  double hours = 0;
};

/// The steps and the time that the useful tokens of the whole data set take, by the tokens of the
/// predicted steps: policies compare by it as by useful tokens per second.
[[nodiscard]] EpochTime epoch_time(const Advice& advice, const Prediction& prediction);

/// The answer in five lines, each with its name in front: the step, the best policy, the bucket
/// size, what the policy changes, an epoch.
[[nodiscard]] std::vector<std::string> advice_lines(const Scenario& scenario, const Advice& advice);

/// The table of the options: where the step goes, and what each gains over what runs now.
[[nodiscard]] std::string advice_table(const Advice& advice, const Screen& screen);

/// The options as JSON, [{"change", "policy", "bucket_cap", "step_ms", "interval90_ms", "data_ms",
/// "forward_ms", "backward_ms", "exposed_communication_ms", "optimizer_ms", "useful_tokens_per_s",
/// "gain", "gain_interval90", "verdict": "now", "faster", "slower" or "too close to tell"}].
[[nodiscard]] Json advice_options_json(const Advice& advice);

/// {"format": "stepsim-advice/1", "answer", "options", "predictions", "recommendation", "sweep",
/// "blame", "epochs"}.
[[nodiscard]] Json advice_json(const Scenario& scenario, const Advice& advice);

}  // namespace stepsim

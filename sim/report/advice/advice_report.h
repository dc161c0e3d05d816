#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/scenario/scenario.h"
#include "sim/study/advice.h"

namespace stepsim {

/// The answer in five lines, each with its name in front: the step, the best policy, the bucket
/// size, what the policy changes, an epoch.
[[nodiscard]] std::vector<std::string> advice_lines(const Scenario& scenario, const Advice& advice);

/// The best policy in one sentence, beside what runs now: "Use max_tokens: +21.4 % useful tokens/s
/// over recorded (90 % interval …); …."
[[nodiscard]] std::string advice_headline(const Scenario& scenario, const Advice& advice);

/// The table of the options: where the step goes, and what each gains over what runs now.
[[nodiscard]] std::string advice_table(const Advice& advice, const Screen& screen);

/// What is set beside the batches: "25 MiB", "list of 3 caps", "root freed, too".
[[nodiscard]] std::string setting_of(const AdviceOption& option);

/// "now", "faster", "likely faster", "slower" or "too close to tell".
[[nodiscard]] const char* verdict_of(const AdviceOption& option);

/// The options as JSON, [{"change", "policy", "bucket_cap", "setting", "step_ms", "interval90_ms",
/// "data_ms", "forward_ms", "backward_ms", "exposed_communication_ms", "optimizer_ms",
/// "useful_tokens_per_s", "tflops_per_rank", "mfu" (both null where they are not known), "gain",
/// "gain_interval90", "verdict": "now", "faster", "slower" or "too close to tell"}].
[[nodiscard]] Json advice_options_json(const Advice& advice);

/// {"format": "stepsim-advice/1", "answer", "options", "predictions", "recommendation", "sweep",
/// "blame", "epochs"}.
[[nodiscard]] Json advice_json(const Scenario& scenario, const Advice& advice);

}  // namespace stepsim

#pragma once

#include <span>
#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/predict/prediction.h"
#include "sim/study/shape_cure.h"

namespace stepsim {

/// What new shapes cost each policy, and when it has paid for them; empty where they cost nothing.
[[nodiscard]] std::string shape_text(std::span<const Prediction> predictions,
                                     const Screen& screen = {});

/// One line a policy: the cheapest way to spend less on new shapes. `cures`: [prediction]; empty:
/// none was looked for.
[[nodiscard]] std::string cures_text(const std::vector<Prediction>& predictions,
                                     const std::vector<ShapeCure>& cures);

/// [policy] "policy", "epoch_step_ms", "cured_step_ms" and "key": what to set; empty where no cure
/// is better.
[[nodiscard]] Json cures_json(const std::vector<Prediction>& predictions,
                              const std::vector<ShapeCure>& cures);

/// Returns {"mechanisms", "first_meetings", "stalled_steps", "lost_ms", …}.
[[nodiscard]] Json shape_json(const ShapeSummary& summary);

}  // namespace stepsim

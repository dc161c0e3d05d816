#pragma once

#include <string>
#include <vector>

#include "costmodel/terminal/screen.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"
#include "sim/study/training/memory_parts.h"

namespace stepsim {

/// One policy: the step, its parts, the ranks. `needs`: training_needs() of it, said below;
/// `training`: training_plans_text(); `memory`: what the peak consists of.
[[nodiscard]] std::string run_text(const Scenario& scenario,
                                   const Prediction& prediction,
                                   const Screen& screen = {},
                                   const std::vector<std::string>& needs = {},
                                   const std::string& training = {},
                                   const MemoryParts& memory = {});

/// Which policy takes the host longest to plan, a line without its end that differs from run to
/// run.
///
/// Args:
///     planning_seconds: [prediction] what planning the epoch took on this host; empty: says
///     nothing.
[[nodiscard]] std::string planning_text(const std::vector<Prediction>& predictions,
                                        const std::vector<double>& planning_seconds);

/// All policies ranked by useful tokens per second, and a recommendation.
[[nodiscard]] std::string compare_text(const Scenario& scenario,
                                       const std::vector<Prediction>& predictions,
                                       const Screen& screen = {},
                                       const std::string& training = {});

}  // namespace stepsim

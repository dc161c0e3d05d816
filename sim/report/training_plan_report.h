#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/study/training/training_plan.h"

namespace stepsim {

/// What training by each policy takes: TFLOP/s and MFU where they are known, and with a goal hours,
/// days, GPU-hours and money. Empty where there is none of these.
[[nodiscard]] std::string training_plans_text(const std::vector<TrainingPlan>& plans,
                                              const EpochGoal& goal,
                                              const Screen& screen);

/// [{"policy", "tflops_per_rank", "mfu", "epochs", "hours", "gpu_hours", "money"}, …]; null where
/// it is not known.
[[nodiscard]] Json training_plans_json(const std::vector<TrainingPlan>& plans);

}  // namespace stepsim

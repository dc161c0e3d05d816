#pragma once

#include "sim/engine/engine.h"
#include "sim/parallel/step.h"

namespace stepsim {

/// The step as a program for the engine: one piece of work per span, collective b for bucket b.
/// Throws std::invalid_argument as check(StepInput).
[[nodiscard]] Program step_program(const StepInput& input);

/// Plays it. Without interference and with one worker this is closed_form_step() exactly.
[[nodiscard]] StepTimeline play_step(const StepInput& input,
                                     Engine& engine,
                                     bool record_spans = false);

}  // namespace stepsim

#pragma once

#include <span>

#include "sim/parallel/step.h"

namespace stepsim {

/// Plays a step as a max-plus recurrence over its buckets: the fast path of predictions. It is
/// exact while rates do not change, and then agrees with the engine to the nanosecond.
///
///   start(b) = max(max_r launch(b, r), end(b-1)),  end(b) = start(b) + all_reduce(b)
[[nodiscard]] StepTimeline closed_form_step(const StepInput& input,
                                            std::span<const RankClock> clocks);

}  // namespace stepsim

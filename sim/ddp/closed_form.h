#pragma once

#include <span>

#include "sim/ddp/step.h"

namespace stepsim {

/// The step as a max-plus recurrence over buckets: the fast path, and the oracle of the event
/// simulator. Exact while rates do not change (no interference).
///
///   start(b) = max(max_r launch(b, r), end(b-1)),  end(b) = start(b) + all_reduce(b)
///
/// With `records_waits` the timeline holds when the devices wait for all-reduces.
[[nodiscard]] StepTimeline closed_form_step(const StepInput& input,
                                            std::span<const RankClock> clocks,
                                            bool records_waits = false);

}  // namespace stepsim

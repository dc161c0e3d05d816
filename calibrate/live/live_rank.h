#pragma once

#include <vector>

#include "calibrate/live/live.h"
#include "calibrate/measure/measure.h"

namespace stepsim {

/// Runs one rank's share of all plans and sends a line for every step and sentinel (see
/// step_line.h). Rank 0 first sends the backend's description as JSON. The plans have been checked.
void run_live_rank(const RankContext& context,
                   const BackendFactory& factory,
                   const std::vector<Plan>& plans,
                   const LiveOptions& options);

}  // namespace stepsim

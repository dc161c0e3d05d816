#pragma once

#include <vector>

#include "calibrate/live/live.h"
#include "calibrate/rank_processes.h"

namespace stepsim {

/// One rank of a live run: runs its share of all plans and sends a line for every step and
/// sentinel (see step_line.h). The plans have been checked.
void run_live_rank(const RankContext& context,
                   const std::vector<Plan>& plans,
                   const LiveOptions& options);

}  // namespace stepsim

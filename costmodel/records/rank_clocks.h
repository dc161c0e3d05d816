#pragma once

#include "costmodel/records/run_record.h"

namespace stepsim {

/// Lays the clocks of ranks on other hosts over rank 0's: hosts count from their own start, and one
/// clock runs faster than another. The all-reduces of a step end together on all ranks, so the last
/// recorded end (of a bucket; else of the backward with its wait) is the common moment of a step.
///
/// Clocks are taken to differ where these ends lie steadily more than a step apart; then start_ms
/// of each step of that rank is moved. Returns the largest steady difference in seconds; 0 where
/// all ranks have one clock.
double align_rank_clocks(RunRecord& record);

}  // namespace stepsim

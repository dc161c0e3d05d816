#pragma once

#include "costmodel/records/run_record.h"

namespace stepsim {

/// Lays the clocks of ranks on other hosts over rank 0's: hosts count from their own start, and one
/// clock runs faster than another. The all-reduces of a step end together on all ranks, so the last
/// recorded end (of a bucket; else of the backward with its wait) is the common moment of a step.
///
/// Clocks are taken to differ where these ends lie more than a step apart in every step; then
/// start_ms of each step of that rank is moved. Ranks that do not meet in every step (local SGD)
/// drift apart and meet again, by one clock. Returns the median difference in seconds, the largest
/// of any rank; 0 where all ranks have one clock, as those of a record with its host's cores do.
double align_rank_clocks(RunRecord& record);

}  // namespace stepsim

#pragma once

#include <span>
#include <vector>

#include "calibrate/import/recorded/recorded_run.h"

namespace stepsim {

/// Sets what a byte weighs against an operation, so that the recorded buckets are launched where
/// the shares of the backward say; unchanged without recorded buckets.
void fit_shares(std::span<const RecordedRun> runs, RecordedModel& model);

}  // namespace stepsim

#pragma once

#include <span>

#include "calibrate/import/recorded/recorded_run.h"

namespace stepsim {

/// Sets what a byte weighs against a floating-point operation in `model`, so that the backward's
/// shares launch the buckets when they were recorded to be. Without recorded buckets the model
/// stays unchanged.
void fit_shares(std::span<const RecordedRun> runs, RecordedModel& model);

}  // namespace stepsim

#pragma once

#include <span>
#include <vector>

#include "calibrate/import/recorded/recorded_run.h"

namespace stepsim {

/// [bucket] Where in the backward of this batch the plan's buckets are launched, as fractions of
/// all of it. `backward`: its ops.
[[nodiscard]] std::vector<double> launch_shares(const Plan& plan,
                                                const std::vector<Op>& backward,
                                                const BatchShape& batch,
                                                double operations_per_byte);

/// Sets what a byte weighs against a floating-point operation in `model`, so that the backward's
/// shares launch the buckets when they were recorded to be. Without recorded buckets the model
/// stays unchanged.
void fit_shares(std::span<const RecordedRun> runs, RecordedModel& model);

}  // namespace stepsim

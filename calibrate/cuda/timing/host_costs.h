#pragma once

#include "calibrate/cuda/ops/op_runner.h"
#include "calibrate/measure/backend.h"

namespace stepsim::cuda {

/// Measures what launching costs on this host: the time to launch an op, averaged over a step of
/// two samples of 8 tokens, the time of an empty kernel, the depth of the queue, and copies of
/// 1 KiB to 16 MiB from page-locked memory. The ops must have run at that batch before.
[[nodiscard]] HostCosts measure_host_costs(OpRunner& runner, const StepOpKinds& kinds);

}  // namespace stepsim::cuda

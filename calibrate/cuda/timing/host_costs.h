#pragma once

#include "calibrate/cuda/training/trainer.h"
#include "calibrate/measure/backend.h"

namespace stepsim::cuda {

/// Measures what launching costs on this host: the time to put a step of two samples into the
/// stream over its ops (the device is faster than that), an empty kernel, the depth of the queue,
/// and copies of 1 KiB to 16 MiB from page-locked memory.
[[nodiscard]] HostCosts measure_host_costs(Trainer& trainer);

}  // namespace stepsim::cuda

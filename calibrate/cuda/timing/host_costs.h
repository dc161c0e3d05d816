#pragma once

#include "calibrate/cuda/training/training_device.h"
#include "calibrate/measure/backend.h"

namespace stepsim::cuda {

/// Measures what launching costs on this host: the time to launch an op, averaged over a step of
/// two small samples (the device is faster than the host there), the time of an empty kernel, the
/// depth of the queue, and copies of 1 KiB to 16 MiB from page-locked memory.
[[nodiscard]] HostCosts measure_host_costs(Trainer& trainer);

}  // namespace stepsim::cuda

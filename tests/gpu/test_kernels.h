#pragma once

#include <cstdint>

#include "calibrate/cuda/device/device.h"

/// Kernels that only tests and benchmarks launch.
namespace stepsim::cuda {

/// Reads and writes `bytes` at `buffer`. With twice the size of the L2 cache nothing from before is
/// left in the cache.
void flush_cache(const Stream& stream, void* buffer, std::int64_t bytes);

}  // namespace stepsim::cuda

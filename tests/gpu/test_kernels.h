#pragma once

#include <cstdint>

#include "calibrate/cuda/device/device.h"

/// Kernels that only tests and benchmarks launch.
namespace stepsim::cuda {

/// Applies inverted dropout: an element is kept with probability 1 - p and then divided by 1 - p.
/// The mask depends on (seed, index) alone, so that the backward is the same call on the gradient.
void dropout(
    const Stream& stream, Array out, ConstArray x, float p, std::uint64_t seed, std::int64_t count);
/// Reads and writes `bytes` at `buffer`. With twice the size of the L2 cache nothing from before is
/// left in the cache.
void flush_cache(const Stream& stream, void* buffer, std::int64_t bytes);

}  // namespace stepsim::cuda

#pragma once

#include <cstdint>

#include "calibrate/cuda/kernels/device_code.cuh"

/// Random numbers by position: no state, the same on every device.
namespace stepsim::cuda {

/// 64 bits of (seed, index). Source: the output function of SplitMix64 (Steele, Lea, Flood 2014).
__device__ inline std::uint64_t random_bits(std::uint64_t seed, std::int64_t index) {
  std::uint64_t z = seed + (static_cast<std::uint64_t>(index) + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// In [0, 1), from the upper or lower half of the bits.
__device__ inline float uniform_of(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24F;
}

}  // namespace stepsim::cuda

#pragma once

#define STEPSIM_EMULATED_DEVICE

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_types.h>

#include "calibrate/cuda/device/device.h"
#include "tests/calibrate/cuda/emulation/clock.h"
#include "tests/calibrate/cuda/emulation/device_limits.h"
#include "tests/calibrate/cuda/emulation/grid.h"

/// CUDA's words for a host compiler. A .cu file that is compiled after this header runs on the
/// calling thread; a launch returns when the kernel has ended.

// Blocks run one after another, so that a block's shared memory can be a static variable.
#undef __shared__
#define __shared__ static thread_local  // NOLINT: CUDA's name
#undef __launch_bounds__
#define __launch_bounds__(...)  // NOLINT: CUDA's name

// NOLINTBEGIN: CUDA's names
inline thread_local uint3 threadIdx{0, 0, 0};
inline thread_local uint3 blockIdx{0, 0, 0};
inline thread_local dim3 blockDim{1, 1, 1};
inline thread_local dim3 gridDim{1, 1, 1};

inline void __syncthreads() {
  stepsim::cuda::emulated::wait_for_block();
}

inline void __syncwarp() {
  stepsim::cuda::emulated::exchange(0, 0);
}

template <typename T>
T __shfl_sync(unsigned /*lanes*/, T value, unsigned lane) {
  static_assert(sizeof(T) <= 8);
  unsigned long long bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = stepsim::cuda::emulated::exchange(bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <typename T>
T __shfl_xor_sync(unsigned lanes, T value, unsigned mask) {
  return __shfl_sync(lanes, value, (threadIdx.x % 32) ^ mask);
}

template <typename T>
T __shfl_down_sync(unsigned lanes, T value, unsigned delta) {
  const unsigned lane = threadIdx.x % 32;
  return __shfl_sync(lanes, value, lane + delta < 32 ? lane + delta : lane);
}

inline float atomicAdd(float* to, float value) {
  const float before = *to;
  *to = before + value;
  return before;
}

inline __nv_bfloat16 atomicAdd(__nv_bfloat16* to, __nv_bfloat16 value) {
  const __nv_bfloat16 before = *to;
  *to = __float2bfloat16_rn(__bfloat162float(before) + __bfloat162float(value));
  return before;
}

inline __half atomicAdd(__half* to, __half value) {
  const __half before = *to;
  *to = __float2half_rn(__half2float(before) + __half2float(value));
  return before;
}

inline __nv_bfloat162 atomicAdd(__nv_bfloat162* to, __nv_bfloat162 value) {
  return {atomicAdd(&to->x, value.x), atomicAdd(&to->y, value.y)};
}

inline __half2 atomicAdd(__half2* to, __half2 value) {
  return {atomicAdd(&to->x, value.x), atomicAdd(&to->y, value.y)};
}

using std::max;
using std::min;

inline float rsqrtf(float x) {
  return 1.0F / std::sqrt(x);
}

inline void __nanosleep(unsigned nanoseconds) {
  stepsim::cuda::emulated::nap(nanoseconds);
}
// NOLINTEND

namespace stepsim::cuda {

inline bool launches_queue() {
  return emulated::holds_expire;
}
/// Few, so that kernels have to stride over the rest.
constexpr std::int64_t kMaxBlocks = 64;

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...),
            std::int64_t blocks,
            int threads,
            const Stream& /*stream*/,
            Arguments... arguments) {
  if (blocks > 0) {
    ++emulated::launches;
    emulated::run_grid(static_cast<unsigned>(std::min(blocks, kMaxBlocks)),
                       static_cast<unsigned>(threads),
                       [&] { kernel(arguments...); });
  }
}

/// Ends the program, as a kernel's misaligned access ends the device's context.
inline void check_aligned(const void* data, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(data) % bytes != 0) {
    std::fputs("the emulated device: misaligned address\n", stderr);
    std::abort();
  }
}

inline unsigned long long device_nanoseconds() {
  return emulated::device_clock();
}

}  // namespace stepsim::cuda

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "calibrate/cuda/device/device.h"

/// What every .cu file includes: the device's number types and how a kernel is launched.
#ifdef __CUDACC__

#include <algorithm>

#include <cuda_runtime.h>

#include "calibrate/cuda/device/check_cuda.h"

namespace stepsim::cuda {

/// Whether a launch returns before the kernel has run.
inline bool launches_queue() {
  return true;
}

/// Most blocks of a grid; kernels stride over what is more.
constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 20;

/// Launches a grid of up to kMaxBlocks blocks in stream order; nothing when `blocks` is 0.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...),
            std::int64_t blocks,
            int threads,
            const Stream& stream,
            Arguments... arguments) {
  if (blocks <= 0) {
    return;
  }
  kernel<<<static_cast<unsigned>(std::min(blocks, kMaxBlocks)),
           static_cast<unsigned>(threads),
           0,
           static_cast<cudaStream_t>(stream.handle())>>>(arguments...);
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) {
    const char* name = nullptr;
    if (cudaFuncGetName(&name, reinterpret_cast<const void*>(kernel)) != cudaSuccess) {
      name = "unnamed";
    }
    check_cuda(status, (std::string("launch of kernel ") + name).c_str());
  }
}

/// The emulated device ends the program where an access is not aligned; a GPU does so by itself.
__device__ inline void check_aligned(const void* /*data*/, std::size_t /*bytes*/) {}

/// The device's clock; it advances in steps of up to a microsecond.
__device__ inline unsigned long long device_nanoseconds() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace stepsim::cuda

#elif !defined(STEPSIM_EMULATED_DEVICE)
#error \
    "compile with nvcc, or as the device emulated on the host does (tests/calibrate/cuda/emulation)"
#endif

#include "tests/gpu/test_kernels.h"

#include "calibrate/cuda/kernels/device_code.cuh"

namespace stepsim::cuda {
namespace {

constexpr int kFlushThreads = 512;

__global__ void __launch_bounds__(kFlushThreads) touch(uint4* data, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    uint4 value = data[i];
    value.x += 1;
    data[i] = value;
  }
}

}  // namespace

void flush_cache(const Stream& stream, void* buffer, std::int64_t bytes) {
  const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(uint4));
  const std::int64_t blocks = (count + kFlushThreads - 1) / kFlushThreads;
  launch(touch,
         std::min<std::int64_t>(blocks, 132 * 16),
         kFlushThreads,
         stream,
         static_cast<uint4*>(buffer),
         count);
}

}  // namespace stepsim::cuda

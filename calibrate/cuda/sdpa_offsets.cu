#include "calibrate/cuda/sdpa_offsets.h"

#include "calibrate/cuda/device_code.cuh"

namespace stepsim::cuda {
namespace {

struct Strides {
  std::int64_t of[4];
};

__global__ void scale_offsets(std::int64_t* out,
                              const std::int32_t* offsets,
                              std::int64_t count,
                              Strides strides) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    for (int array = 0; array < 4; ++array) {
      out[array * count + i] = offsets[i] * strides.of[array];
    }
  }
}

}  // namespace

void element_offsets(const Stream& stream,
                     std::int64_t* out,
                     const std::int32_t* offsets,
                     std::int64_t count,
                     const std::array<std::int64_t, 4>& strides) {
  constexpr int kThreads = 256;
  launch(scale_offsets,
         (count + kThreads - 1) / kThreads,
         kThreads,
         stream,
         out,
         offsets,
         count,
         Strides{{strides[0], strides[1], strides[2], strides[3]}});
}

}  // namespace stepsim::cuda

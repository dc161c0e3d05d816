#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "calibrate/cuda/device/device.h"

namespace stepsim::cuda {

/// Element `index` of an array in host memory, in double precision.
[[nodiscard]] inline double load(ConstArray array, std::int64_t index) {
  switch (array.dtype) {
    case Dtype::Bf16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(array.data)[index]);
    case Dtype::F16:
      return __half2float(static_cast<const __half*>(array.data)[index]);
    default:
      return static_cast<const float*>(array.data)[index];
  }
}

/// Rounds `value` to the array's dtype.
inline void store(Array array, std::int64_t index, double value) {
  switch (array.dtype) {
    case Dtype::Bf16:
      static_cast<__nv_bfloat16*>(array.data)[index] = __double2bfloat16(value);
      return;
    case Dtype::F16:
      static_cast<__half*>(array.data)[index] = __double2half(value);
      return;
    default:
      static_cast<float*>(array.data)[index] = static_cast<float>(value);
  }
}

}  // namespace stepsim::cuda

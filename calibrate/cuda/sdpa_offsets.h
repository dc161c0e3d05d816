#pragma once

#include <array>
#include <cstdint>

#include "calibrate/cuda/device.h"

namespace stepsim::cuda {

/// out[array][i] = offsets[i] * stride[array]: first tokens as first elements of several arrays.
///
/// Args:
///     out: [strides][count], on the device.
///     offsets: [count] tokens, on the device.
void element_offsets(const Stream& stream,
                     std::int64_t* out,
                     const std::int32_t* offsets,
                     std::int64_t count,
                     const std::array<std::int64_t, 4>& strides);

}  // namespace stepsim::cuda

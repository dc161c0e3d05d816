#pragma once

#include <cstdint>

#include "calibrate/cpu/device.h"
#include "calibrate/training/kernel_arguments.h"

namespace stepsim::cpu {

/// The parameters of a norm over rows of `width` features; null where it has none.
struct NormWeights {
  const float* gain = nullptr;
  const float* bias = nullptr;
};
struct NormGradients {
  float* gain = nullptr;
  float* bias = nullptr;
};

/// Layer norm, out = (x - mean) / sqrt(variance + eps) * gain + bias, or when `rms` the RMS norm,
/// out = x / sqrt(mean of squares + eps) * gain. Epsilon is 1e-5, PyTorch's default for
/// nn.LayerNorm. Keeps (mean, 1/sqrt) in `saved` [row][2].
void norm_forward(const Stream& stream,
                  bool rms,
                  float* out,
                  float* saved,
                  const float* x,
                  const NormWeights& weights,
                  std::int64_t rows,
                  std::int64_t width);

/// dx is assigned or added to; the sums over rows are added to the gradients of gain and bias.
/// Needs no scratch memory.
void norm_backward(const Stream& stream,
                   bool rms,
                   float* dx,
                   Store store,
                   const NormGradients& gradients,
                   const float* dout,
                   const float* x,
                   const float* saved,
                   const NormWeights& weights,
                   std::int64_t rows,
                   std::int64_t width,
                   float* scratch);

}  // namespace stepsim::cpu

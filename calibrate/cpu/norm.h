#pragma once

#include <cstdint>

#include "calibrate/cpu/gemm.h"

namespace stepsim::cpu {

/// Added to the variance, PyTorch's default for nn.LayerNorm.
constexpr float kNormEpsilon = 1e-5F;

/// A normalisation over rows of `width` features. `gain` and `bias` may be null (no parameters).
struct NormWeights {
  const float* gain;
  const float* bias;
};

struct NormGradients {
  float* gain;
  float* bias;
};

/// out = (x - mean) / sqrt(variance + eps) * gain + bias. Keeps (mean, 1/sqrt) in `saved` [row][2].
void layer_norm_forward(float* out,
                        float* saved,
                        const float* x,
                        NormWeights weights,
                        std::int64_t rows,
                        std::int64_t width);

/// dx (=|+=), and the sums over rows are added to the gradients of gain and bias.
void layer_norm_backward(float* dx,
                         Store store,
                         NormGradients gradients,
                         const float* dout,
                         const float* x,
                         const float* saved,
                         NormWeights weights,
                         std::int64_t rows,
                         std::int64_t width);

/// out = x / sqrt(mean of squares + eps) * gain.
void rms_norm_forward(float* out,
                      float* saved,
                      const float* x,
                      NormWeights weights,
                      std::int64_t rows,
                      std::int64_t width);
void rms_norm_backward(float* dx,
                       Store store,
                       NormGradients gradients,
                       const float* dout,
                       const float* x,
                       const float* saved,
                       NormWeights weights,
                       std::int64_t rows,
                       std::int64_t width);

}  // namespace stepsim::cpu

#pragma once

#include <cstdint>

namespace stepsim::cpu {

/// PyTorch's defaults, but for the learning rate.
struct AdamW {
  float learning_rate = 2e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0.01F;
};

/// One update of `count` weights; `step` counts from 1.
///
/// w -= lr wd w; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
/// w -= lr / (1-b1^t) * m / (sqrt(v / (1-b2^t)) + eps).
/// Source: Loshchilov and Hutter 1711.05101; torch.optim.AdamW.
void adamw_update(const AdamW& options,
                  float* weights,
                  float* m,
                  float* v,
                  const float* gradient,
                  std::int64_t count,
                  std::int64_t step);

}  // namespace stepsim::cpu

#pragma once

#include <cstdint>

#include "calibrate/cpu/device.h"
#include "calibrate/training/kernel_arguments.h"

namespace stepsim::cpu {

/// Updates `count` weights once; `step` counts from 1. `copy` is for devices that keep the weights
/// in a second dtype.
///
/// w -= lr wd w; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
/// w -= lr / (1-b1^t) * m / (sqrt(v / (1-b2^t)) + eps).
/// Source: Loshchilov and Hutter 1711.05101; torch.optim.AdamW.
void adamw_update(const Stream& stream,
                  const AdamW& options,
                  float* weights,
                  float* m,
                  float* v,
                  const float* gradient,
                  float* copy,
                  std::int64_t count,
                  std::int64_t step);

}  // namespace stepsim::cpu

#pragma once

#include <cstdint>

#include "calibrate/cpu/device.h"
#include "calibrate/training/activation_kind.h"

namespace stepsim::cpu {

/// y = f(x), element by element. GELU by erf is right to |error| < 2e-7.
void activation_forward(
    const Stream& stream, ActivationKind kind, float* y, const float* x, std::int64_t count);

/// dx = dy f'(x).
void activation_backward(const Stream& stream,
                         ActivationKind kind,
                         float* dx,
                         const float* dy,
                         const float* x,
                         std::int64_t count);

/// SwiGLU: y = silu(gate) * up, silu(g) = g sigmoid(g).
void swiglu_forward(
    const Stream& stream, float* y, const float* gate, const float* up, std::int64_t count);
void swiglu_backward(const Stream& stream,
                     float* dgate,
                     float* dup,
                     const float* dy,
                     const float* gate,
                     const float* up,
                     std::int64_t count);

}  // namespace stepsim::cpu

#pragma once

#include <cstdint>

#include "calibrate/training/activation_kind.h"

namespace stepsim::cpu {

/// y = f(x), element by element; GELU by erf to |error| < 2e-7.
void activation_forward(ActivationKind kind, float* y, const float* x, std::int64_t count);

/// dx = dy f'(x).
void activation_backward(
    ActivationKind kind, float* dx, const float* dy, const float* x, std::int64_t count);

/// SwiGLU: y = silu(gate) * up, silu(g) = g sigmoid(g).
void swiglu_forward(float* y, const float* gate, const float* up, std::int64_t count);
void swiglu_backward(float* dgate,
                     float* dup,
                     const float* dy,
                     const float* gate,
                     const float* up,
                     std::int64_t count);

}  // namespace stepsim::cpu

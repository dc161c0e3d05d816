#pragma once

#include <cstdint>

namespace stepsim::cpu {

/// Functions of one input.
enum class ActivationKind {
  GeluErf,      ///< x Phi(x), PyTorch's default (BERT, classifiers); |error| < 2e-7.
  GeluTanh,     ///< The tanh form (GPT-2's gelu_new).
  ReluSquared,  ///< max(x, 0)^2 (nanochat).
  Tanh,         ///< BERT's pooler.
  Relu          ///< DistilBERT's head.
};

/// y = f(x), element by element.
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

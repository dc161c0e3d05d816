#pragma once

#include "costmodel/model/transformer.h"

namespace stepsim {

/// An activation function of one input.
enum class ActivationKind {
  GeluErf,      ///< x Phi(x), PyTorch's default (BERT, classifiers).
  GeluTanh,     ///< The tanh form (GPT-2's gelu_new).
  ReluSquared,  ///< max(x, 0)^2 (nanochat).
  Tanh,         ///< BERT's pooler.
  Relu          ///< DistilBERT's head.
};

/// The activation of a family's MLP, or of its classification head when `head`.
[[nodiscard]] constexpr ActivationKind activation_of(ModelFamily family, bool head) {
  switch (family) {
    case ModelFamily::Bert:
      return head ? ActivationKind::Tanh : ActivationKind::GeluErf;
    case ModelFamily::DistilBert:
      return head ? ActivationKind::Relu : ActivationKind::GeluErf;
    case ModelFamily::Gpt2:
      return ActivationKind::GeluTanh;
    case ModelFamily::Nanochat:
      return ActivationKind::ReluSquared;
    case ModelFamily::TokenClassifier:
    case ModelFamily::Llama:   // Its MLP is gated (swiglu).
    case ModelFamily::Blocks:  // It has no MLP.
      return ActivationKind::GeluErf;
  }
  return ActivationKind::GeluErf;
}

}  // namespace stepsim

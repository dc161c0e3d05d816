#pragma once

#include <string>
#include <vector>

#include "costmodel/architecture/described_model.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// A parameter and the op of step_ops() that uses it. The lists of parameters and of ops are both
/// made from these, so that they agree.
struct OwnedParameter {
  Parameter parameter;
  std::string op;  ///< "layer3.qkv"
};

/// Returns the parameters in registration order. A tied table belongs to the op "embedding". The
/// list stays until this thread asks for that of another model.
[[nodiscard]] const std::vector<OwnedParameter>& owned_parameters(const TransformerConfig& config);

/// Returns what a Transformers model is made of.
[[nodiscard]] DescribedModel described(const TransformerConfig& config);

/// True for the families that normalise before attention and MLP and once more at the end.
[[nodiscard]] inline bool pre_norm(ModelFamily family) {
  return family != ModelFamily::Bert && family != ModelFamily::DistilBert;
}

/// True for the families that predict a token at each position.
[[nodiscard]] inline bool language_model(ModelFamily family) {
  return family == ModelFamily::Gpt2 || family == ModelFamily::Llama ||
         family == ModelFamily::Nanochat;
}

/// True for the families with a learned table of positions.
[[nodiscard]] inline bool position_table(ModelFamily family) {
  return family == ModelFamily::Bert || family == ModelFamily::DistilBert ||
         family == ModelFamily::Gpt2;
}

/// True for the families that rotate queries and keys, and may group their queries.
[[nodiscard]] inline bool rotary(ModelFamily family) {
  return family == ModelFamily::Llama || family == ModelFamily::Nanochat;
}

/// True for the families that compute queries, keys and values in one matrix product.
[[nodiscard]] inline bool fused_qkv(ModelFamily family) {
  return family == ModelFamily::TokenClassifier || family == ModelFamily::Gpt2;
}

}  // namespace stepsim

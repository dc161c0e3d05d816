#pragma once

#include <span>
#include <string>
#include <string_view>

#include "costmodel/model/transformer.h"

namespace stepsim {

/// A published model by name, with the source of its dimensions.
struct ModelPreset {
  TransformerConfig config;
  std::string source;
};

/// tiny-classifier, distilbert, bert-base, bert-large, gpt2-small, gpt2-medium, gpt2-xl, llama2-7b,
/// llama2-13b, llama2-70b, llama3-8b, nanochat-d24.
[[nodiscard]] std::span<const ModelPreset> model_presets();

/// Raises InputError for an unknown name (lists the known ones and the nearest).
[[nodiscard]] const TransformerConfig& model_preset(std::string_view name);

}  // namespace stepsim

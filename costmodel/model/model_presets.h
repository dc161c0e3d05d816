#pragma once

#include <span>
#include <string>
#include <string_view>

#include "costmodel/model/transformer.h"

namespace stepsim {

/// The dimensions of a published model, and where they were published.
struct ModelPreset {
  TransformerConfig config;
  std::string source;
};

/// Returns all presets: tiny-classifier, distilbert, bert-base, bert-large, gpt2-small,
/// gpt2-medium, gpt2-large, gpt2-xl, llama2-7b, llama2-13b, llama2-70b, llama3-8b, nanochat-d24.
[[nodiscard]] std::span<const ModelPreset> model_presets();

/// Returns the preset of this name. Raises InputError for an unknown name; the message lists the
/// known names and the nearest one.
[[nodiscard]] const TransformerConfig& model_preset(std::string_view name);

}  // namespace stepsim

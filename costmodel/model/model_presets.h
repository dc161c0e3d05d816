#pragma once

#include <span>
#include <string>
#include <string_view>

#include "costmodel/base/input_error.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// The dimensions of a published model, and where they were published.
struct ModelPreset {
  TransformerConfig config;
  std::string source;
};

/// Returns all presets: tiny-classifier, distilbert, bert-base, bert-large, gpt2-small,
/// gpt2-medium, gpt2-large, gpt2-xl, llama2-7b, llama2-13b, llama2-70b, llama3-8b, nanochat-d24,
/// and those of add_config_presets().
[[nodiscard]] std::span<const ModelPreset> model_presets();

/// How a model that is no preset and of no family is told: the end of a message about its name.
[[nodiscard]] std::string other_models_hint();
/// The error about a name with that hint, unless it knows a name that is near.
[[nodiscard]] InputError with_other_models(const InputError& error);

/// Returns the preset of this name. Raises InputError for an unknown name; the message lists the
/// known names and the nearest one, and says how other models are told.
[[nodiscard]] const TransformerConfig& model_preset(std::string_view name);

}  // namespace stepsim

#pragma once

#include <vector>

#include "costmodel/model/model_presets.h"

namespace stepsim {

/// Adds the presets that are a config.json of transformers: models of 1 to 8 billion parameters of
/// 2024 and 2025, and encoders of text, images and speech.
void add_config_presets(std::vector<ModelPreset>& presets);

}  // namespace stepsim

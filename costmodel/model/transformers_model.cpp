#include "costmodel/architecture/config_file.h"
#include "costmodel/architecture/families.h"
#include "costmodel/model/transformer_layout.h"

namespace stepsim {

DescribedModel described(const TransformerConfig& config) {
  return described_model(ConfigFile(config.config_json, "config.json"),
                         config.architecture,
                         {config.attention, config.dtype, config.parameter_dtype});
}

TransformerConfig transformers_model(const std::string& config_json,
                                     const std::string& architecture,
                                     const std::string& file) {
  const ConfigFile text(config_json, file);
  const DescribedModel model = described_model(text, architecture, {});
  TransformerConfig config;
  config.name = text.model_type();
  config.family = ModelFamily::Transformers;
  config.config_json = text.brief();
  config.architecture = model.architecture;
  config.layers = model.layers;
  config.hidden = model.hidden;
  config.heads = model.heads;
  config.kv_heads = model.kv_heads;
  config.ffn = model.ffn;
  config.vocab = model.vocab;
  config.max_length = model.max_length;
  config.classes = model.classes;
  config.window = model.window;
  config.tied_embeddings = model.tied_embeddings;
  config.causal = model.causal;
  if (const std::string dtype = text.dtype(); !dtype.empty()) {
    config.dtype = config.parameter_dtype = parse_dtype(dtype);
  }
  const bool half = element_size(config.dtype) == 2;
  if (half && model.has_fused_attention) {
    config.attention = AttentionKind::Flash;
  }
  return config;
}

}  // namespace stepsim

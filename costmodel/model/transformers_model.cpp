#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

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

std::vector<std::string> sizes_by_default(const TransformerConfig& config) {
  struct Size {
    std::vector<std::string_view> keys;  ///< The usual name first.
    std::int64_t value = 0;              ///< 0: the model has no such size.
  };
  // GPT-2's files leave out n_inner, which is four times the width.
  const bool usual_ffn = config.ffn == 4 * config.hidden;
  const std::vector<Size> sizes = {
      {{"hidden_size", "n_embd", "d_model", "dim"}, config.hidden},
      {{"num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers"}, config.layers},
      {{"num_attention_heads", "n_head", "num_heads", "n_heads", "decoder_attention_heads"},
       config.heads},
      {{"intermediate_size",
        "n_inner",
        "d_ff",
        "hidden_dim",
        "decoder_ffn_dim",
        "intermediate_size_mlp"},
       usual_ffn ? 0 : config.ffn},
      {{"vocab_size"}, config.vocab}};
  const ConfigFile text(config.config_json, "config.json");
  std::vector<std::string> missing;
  for (const Size& size : sizes) {
    const bool is_stated =
        std::ranges::any_of(size.keys, [&](std::string_view key) { return text.has(key); });
    if (size.value > 0 && !is_stated) {
      missing.push_back(fmt::format("{} {}", size.keys.front(), size.value));
    }
  }
  return missing;
}

}  // namespace stepsim

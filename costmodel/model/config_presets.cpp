#include "costmodel/model/config_presets.h"

#include <string>
#include <utility>

namespace stepsim {
namespace {

/// The keys of a config.json that decide sizes. The parameters that they make are those that
/// transformers counts (tests/costmodel/model/transformer_test.cpp).
struct ConfigPreset {
  const char* name;
  const char* page;  ///< Of Hugging Face, whose sizes these are.
  const char* config;
};

// clang-format off
constexpr ConfigPreset kConfigPresets[] = {
    {"llama3.2-1b", "meta-llama/Llama-3.2-1B",
     R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, )"
     R"("intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, )"
     R"("num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "max_position_embeddings": 131072, )"
     R"("tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    {"llama3.2-3b", "meta-llama/Llama-3.2-3B",
     R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 3072, )"
     R"("intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24, )"
     R"("num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 131072, )"
     R"("tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    {"qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B",
     R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 1536, )"
     R"("intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12, )"
     R"("num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 131072, )"
     R"("tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    {"qwen2.5-7b", "Qwen/Qwen2.5-7B",
     R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, )"
     R"("intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, )"
     R"("num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 131072, )"
     R"("tie_word_embeddings": false, "torch_dtype": "bfloat16"})"},
    {"qwen3-4b", "Qwen/Qwen3-4B",
     R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 2560, )"
     R"("intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32, )"
     R"("num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960, )"
     R"("tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    {"qwen3-8b", "Qwen/Qwen3-8B",
     R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, )"
     R"("intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32, )"
     R"("num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960, )"
     R"("tie_word_embeddings": false, "torch_dtype": "bfloat16"})"},
    {"mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3",
     R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096, )"
     R"("intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, )"
     R"("num_key_value_heads": 8, "vocab_size": 32768, "max_position_embeddings": 32768, "sliding_window": )"
     R"(null, "tie_word_embeddings": false, "torch_dtype": "bfloat16"})"},
    {"olmo2-7b", "allenai/OLMo-2-1124-7B",
     R"({"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "hidden_size": 4096, )"
     R"("intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, )"
     R"("num_key_value_heads": 32, "vocab_size": 100352, "max_position_embeddings": 4096, )"
     R"("tie_word_embeddings": false, "torch_dtype": "bfloat16"})"},
    {"smollm3-3b", "HuggingFaceTB/SmolLM3-3B",
     R"({"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "hidden_size": 2048, )"
     R"("intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16, )"
     R"("num_key_value_heads": 4, "vocab_size": 128256, "max_position_embeddings": 65536, )"
     R"("tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    {"modernbert-base", "answerdotai/ModernBERT-base",
     R"({"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "hidden_size": 768, )"
     R"("intermediate_size": 1152, "num_hidden_layers": 22, "num_attention_heads": 12, "vocab_size": 50368, )"
     R"("max_position_embeddings": 8192, "local_attention": 128, "global_attn_every_n_layers": 3})"},
    {"vit-base", "google/vit-base-patch16-224",
     R"({"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 768, )"
     R"("intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 224, )"
     R"("patch_size": 16, "num_labels": 1000})"},
    {"whisper-small", "openai/whisper-small",
     R"({"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "d_model": 768, )"
     R"("encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12, )"
     R"("decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "num_mel_bins": 80, )"
     R"("vocab_size": 51865, "max_source_positions": 1500, "max_target_positions": 448})"},
    {"whisper-large-v3", "openai/whisper-large-v3",
     R"({"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "d_model": 1280, )"
     R"("encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20, )"
     R"("decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "num_mel_bins": )"
     R"(128, "vocab_size": 51866, "max_source_positions": 1500, "max_target_positions": 448})"},
};
// clang-format on

/// The class that is trained, and its page.
std::string source_of(const TransformerConfig& config, const ConfigPreset& preset) {
  return "transformers " + config.architecture + ", config.json of " + preset.page;
}

}  // namespace

void add_config_presets(std::vector<ModelPreset>& presets) {
  for (const ConfigPreset& preset : kConfigPresets) {
    TransformerConfig config = transformers_model(preset.config, "", preset.name);
    config.name = preset.name;
    std::string source = source_of(config, preset);
    presets.push_back({std::move(config), std::move(source)});
  }
}

}  // namespace stepsim

#include "costmodel/model/model_presets.h"

#include <utility>
#include <vector>

#include "costmodel/base/row_named.h"
#include "costmodel/model/config_presets.h"

namespace stepsim {
namespace {

/// The sizes that differ between the presets of one family.
struct Sizes {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t ffn = 0;
  std::int64_t vocab = 0;
  std::int64_t max_length = 0;
};

TransformerConfig base(std::string name, ModelFamily family, const Sizes& sizes) {
  TransformerConfig config;
  config.name = std::move(name);
  config.family = family;
  config.layers = sizes.layers;
  config.hidden = sizes.hidden;
  config.heads = sizes.heads;
  config.kv_heads = sizes.kv_heads;
  config.ffn = sizes.ffn;
  config.vocab = sizes.vocab;
  config.max_length = sizes.max_length;
  return config;
}

ModelPreset classifier(std::string name,
                       ModelFamily family,
                       const Sizes& sizes,
                       std::int64_t classes,
                       std::string source) {
  TransformerConfig config = base(std::move(name), family, sizes);
  config.classes = classes;
  return {std::move(config), std::move(source)};
}

ModelPreset gpt2(std::string name, std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  constexpr std::int64_t kVocab = 50257;
  constexpr std::int64_t kPositions = 1024;
  TransformerConfig config = base(std::move(name),
                                  ModelFamily::Gpt2,
                                  {layers, hidden, heads, heads, 4 * hidden, kVocab, kPositions});
  config.tied_embeddings = true;
  config.causal = true;
  return {std::move(config), "transformers GPT2LMHeadModel, config.json of openai-community/gpt2*"};
}

/// Returns the model as it is trained in bf16 with fused attention.
ModelPreset large(std::string name, ModelFamily family, const Sizes& sizes, std::string source) {
  TransformerConfig config = base(std::move(name), family, sizes);
  config.causal = true;
  config.dtype = Dtype::Bf16;
  config.parameter_dtype = Dtype::Bf16;
  config.attention = AttentionKind::Flash;
  return {std::move(config), std::move(source)};
}

std::vector<ModelPreset> make_presets() {
  using Family = ModelFamily;
  std::vector<ModelPreset> presets;
  presets.push_back(classifier("tiny-classifier",
                               Family::TokenClassifier,
                               {1, 48, 4, 4, 96, 8192, 256},
                               16,
                               "token-skew lab of duoan/playground-cuda, commit 119ae2b4"));
  presets.push_back(classifier("distilbert",
                               Family::DistilBert,
                               {6, 768, 12, 12, 3072, 30522, 512},
                               2,
                               "transformers DistilBertForSequenceClassification, config.json of "
                               "distilbert-base-uncased"));
  presets.push_back(classifier("bert-base",
                               Family::Bert,
                               {12, 768, 12, 12, 3072, 30522, 512},
                               0,
                               "transformers BertModel, config.json of bert-base-uncased"));
  presets.push_back(classifier("bert-large",
                               Family::Bert,
                               {24, 1024, 16, 16, 4096, 30522, 512},
                               0,
                               "transformers BertModel, config.json of bert-large-uncased"));
  presets.push_back(gpt2("gpt2-small", 12, 768, 12));
  presets.push_back(gpt2("gpt2-medium", 24, 1024, 16));
  presets.push_back(gpt2("gpt2-large", 36, 1280, 20));
  presets.push_back(gpt2("gpt2-xl", 48, 1600, 25));
  presets.push_back(large("llama2-7b",
                          Family::Llama,
                          {32, 4096, 32, 32, 11008, 32000, 4096},
                          "config.json of meta-llama/Llama-2-7b-hf"));
  presets.push_back(large("llama2-13b",
                          Family::Llama,
                          {40, 5120, 40, 40, 13824, 32000, 4096},
                          "config.json of meta-llama/Llama-2-13b-hf"));
  presets.push_back(large("llama2-70b",
                          Family::Llama,
                          {80, 8192, 64, 8, 28672, 32000, 4096},
                          "config.json of meta-llama/Llama-2-70b-hf"));
  presets.push_back(large("llama3-8b",
                          Family::Llama,
                          {32, 4096, 32, 8, 14336, 128256, 8192},
                          "config.json of meta-llama/Meta-Llama-3-8B"));
  // Left out: the norms of queries and keys, the logits' soft cap, value embeddings, the learned
  // residual scales and the per-layer choice of window, which differ between its versions. They
  // add elementwise work and, with value embeddings, parameters.
  presets.push_back(large("nanochat-d24",
                          Family::Nanochat,
                          {24, 1536, 12, 12, 6144, 65536, 2048},
                          "karpathy/nanochat GPT, depth 24: hidden 64 x depth, heads of 128"));
  add_config_presets(presets);
  return presets;
}

}  // namespace

std::span<const ModelPreset> model_presets() {
  static const std::vector<ModelPreset> kPresets = make_presets();
  return kPresets;
}

std::string other_models_hint() {
  return "; a model of transformers: config = \"config.json\", of the families that `stepsim "
         "models` "
         "lists; any other model: kind = \"recorded\" with the profile of a recorded training "
         "(three "
         "lines of stepsim_recorder.py, then stepcal import run-record), or of its step times "
         "(stepcal import step-times with --tensors or --gradient-bytes); or kind = \"blocks\" "
         "with "
         "the list of its tensors and [times]";
}

InputError with_other_models(const InputError& error) {
  const std::string message = error.what();
  const bool is_near = message.find("; did you mean ") != std::string::npos;
  return InputError(is_near ? message : message + other_models_hint(), error.lookup());
}

const TransformerConfig& model_preset(std::string_view name) {
  const auto name_of_preset = [](const ModelPreset& preset) { return preset.config.name; };
  if (name.find('/') != std::string_view::npos) {
    throw InputError(
        "'{}' is a name of Hugging Face, which is not looked up; write config = \"config.json\" "
        "with "
        "the file that AutoConfig.from_pretrained(\"{}\").to_json_file(\"config.json\") makes, or "
        "that is among the files of its page",
        printable(name),
        printable(name));
  }
  try {
    return row_named(model_presets(), name_of_preset, "model preset", name, Lookup::Models).config;
  } catch (const InputError& error) {
    throw with_other_models(error);
  }
}

}  // namespace stepsim

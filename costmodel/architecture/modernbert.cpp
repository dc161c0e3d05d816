// ModernBERT: an encoder with rotated positions, windows in most layers and a gated MLP.
#include <algorithm>

#include <fmt/format.h>

#include "costmodel/architecture/families.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// The window of a layer in tokens, the position itself included; 0: none.
std::int64_t window_of(const ConfigFile& config,
                       const std::vector<std::string>& types,
                       std::int64_t layer) {
  constexpr std::int64_t kEvery = 3;
  const auto index = static_cast<std::size_t>(layer);
  const std::int64_t every =
      std::max<std::int64_t>(config.integer("global_attn_every_n_layers", kEvery), 1);
  const bool local =
      index < types.size() ? types[index] == "sliding_attention" : layer % every != 0;
  // `local_attention` tokens, half of them to each side.
  return local ? config.integer("local_attention", 128) / 2 + 1 : 0;
}

void modernbert(const ConfigFile& config, Head head, ModelBuilder& builder) {
  DescribedModel& model = builder.model;
  const std::int64_t hidden = config.integer("hidden_size", 768);
  model.hidden = hidden;
  model.layers = config.integer("num_hidden_layers", 22);
  model.heads = model.kv_heads = config.integer("num_attention_heads", 12);
  model.ffn = config.integer("intermediate_size", 1152);
  model.vocab = config.integer("vocab_size", 50368);
  model.max_length = config.integer("max_position_embeddings", 8192);
  if (model.heads < 1 || hidden % model.heads != 0) {
    throw FieldError("num_attention_heads",
                     fmt::format("{} heads do not divide the width {}", model.heads, hidden));
  }
  model.stacks = {{model.layers, hidden, model.heads, hidden, 2 * model.ffn, false, 0, 0}};
  const bool norm_bias = config.flag("norm_bias", false);
  const bool attention_bias = config.flag("attention_bias", false);
  const bool mlp_bias = config.flag("mlp_bias", false);
  const std::vector<std::string> types = config.texts("layer_types");
  const std::string root = head == Head::Base ? "" : "model.";
  builder.linear(root + "embeddings.tok_embeddings", hidden, model.vocab, false, "embedding");
  builder.norm(root + "embeddings.norm", hidden, norm_bias, "embedding_norm");
  builder.op("embedding", OpClass::Embedding, hidden, model.vocab);
  builder.norm_op("embedding_norm", hidden);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string name = fmt::format("{}layers.{}.", root, i);
    const std::string op = fmt::format("layer{}.", i);
    if (i > 0) {  // The first layer's input has just been normalized.
      builder.norm(name + "attn_norm", hidden, norm_bias, op + "attention_norm");
    }
    builder.linear(name + "attn.Wqkv", hidden, 3 * hidden, attention_bias, op + "qkv");
    builder.linear(name + "attn.Wo", hidden, hidden, attention_bias, op + "attention_output");
    builder.norm(name + "mlp_norm", hidden, norm_bias, op + "mlp_norm");
    builder.linear(name + "mlp.Wi", hidden, 2 * model.ffn, mlp_bias, op + "mlp_up");
    builder.linear(name + "mlp.Wo", model.ffn, hidden, mlp_bias, op + "mlp_down");
    builder.begin(op);
    if (i > 0) {
      builder.norm_op("attention_norm", hidden);
    }
    builder.product("qkv", hidden, 3 * hidden);
    builder.add("rotary", 2 * hidden);
    const std::int64_t window = window_of(config, types, i);
    model.window = std::max(model.window, window);
    builder.attention({model.heads, model.heads, hidden / model.heads, false, window, 0});
    builder.product("attention_output", hidden, hidden);
    builder.add("attention_residual", hidden);
    builder.norm_op("mlp_norm", hidden);
    builder.product("mlp_up", hidden, 2 * model.ffn);
    builder.op("activation", OpClass::Activation, model.ffn);
    builder.product("mlp_down", model.ffn, hidden);
    builder.add("mlp_residual", hidden);
  }
  builder.begin("");
  builder.norm(root + "final_norm", hidden, norm_bias, "final_norm");
  builder.norm_op("final_norm", hidden);
  if (head == Head::Base) {
    builder.loss(hidden);
    return;
  }
  const bool masked = head == Head::MaskedLm;
  if (head == Head::Sequence || head == Head::MultipleChoice) {
    builder.op("pooling", OpClass::Pooling, hidden);
    builder.rows(RowUnit::Samples);
  }
  builder.linear("head.dense", hidden, hidden, config.flag("classifier_bias", false), "head_dense");
  builder.norm("head.norm", hidden, norm_bias, "head_norm");
  builder.product("head_dense", hidden, hidden);
  builder.op("head_activation", OpClass::Activation, hidden);
  builder.norm_op("head_norm", hidden);
  if (masked) {
    model.tied_embeddings = config.flag("tie_word_embeddings", true);
    if (!model.tied_embeddings) {
      builder.tensor("decoder.weight", {model.vocab, hidden}, "lm_head");
    }
    if (config.flag("decoder_bias", true)) {
      builder.tensor("decoder.bias", {model.vocab}, "lm_head");
    }
    builder.product("lm_head", hidden, model.vocab);
    builder.loss(model.vocab);
    return;
  }
  model.classes = head == Head::MultipleChoice ? 1 : config.labels();
  builder.linear("classifier", hidden, model.classes, true, "classifier");
  builder.product("classifier", hidden, model.classes);
  builder.loss(model.classes);
}

}  // namespace

std::vector<Family> modernbert_families() {
  return {{"modernbert",
           "ModernBert",
           {Head::MaskedLm,
            Head::Sequence,
            Head::Tokens,
            Head::Questions,
            Head::MultipleChoice,
            Head::Base},
           modernbert}};
}

}  // namespace stepsim

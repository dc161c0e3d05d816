// Decoders with biases and layer norms: GPT-2, GPT-NeoX, Phi 1 and 2.
#include <fmt/format.h>

#include "costmodel/architecture/families.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// The width of a head. Raises FieldError: heads do not divide the width.
std::int64_t head_width(std::int64_t hidden, std::int64_t heads, const char* key) {
  if (heads < 1 || hidden % heads != 0) {
    throw FieldError(key, fmt::format("{} heads do not divide the width {}", heads, hidden));
  }
  return hidden / heads;
}

/// What comes after the last norm.
void head_of(const ConfigFile& config, Head head, bool lm_bias, ModelBuilder& builder) {
  DescribedModel& model = builder.model;
  if (head == Head::Base) {
    builder.loss(model.hidden);
    return;
  }
  if (head == Head::CausalLm) {
    if (!model.tied_embeddings) {
      builder.tensor("lm_head.weight", {model.vocab, model.hidden}, "lm_head");
    }
    if (lm_bias) {
      builder.tensor("lm_head.bias", {model.vocab}, "lm_head");
    }
    builder.product("lm_head", model.hidden, model.vocab);
    builder.loss(model.vocab);
    return;
  }
  model.tied_embeddings = false;
  model.classes = config.labels();
  const bool sequence = head == Head::Sequence;
  const char* const name =
      sequence ? "score" : (head == Head::Questions ? "qa_outputs" : "classifier");
  builder.linear(name, model.hidden, model.classes, !sequence, "classifier");
  builder.product("classifier", model.hidden, model.classes);
  builder.loss(model.classes);
}

void add_stack(DescribedModel& model) {
  model.causal = true;
  model.kv_heads = model.heads;
  model.stacks = {{model.layers, model.hidden, model.heads, model.hidden, model.ffn, false, 0, 0}};
}

void mlp_ops(ModelBuilder& builder) {
  builder.product("mlp_up", builder.model.hidden, builder.model.ffn);
  builder.op("activation", OpClass::Activation, builder.model.ffn);
  builder.product("mlp_down", builder.model.ffn, builder.model.hidden);
}

void gpt2(const ConfigFile& config, Head head, ModelBuilder& builder) {
  DescribedModel& model = builder.model;
  if (config.flag("add_cross_attention", false)) {
    throw FieldError("add_cross_attention", "true is not known; train the decoder alone");
  }
  const std::int64_t hidden = config.integer({"n_embd", "hidden_size"}, 768);
  model.hidden = hidden;
  model.layers = config.integer({"n_layer", "num_hidden_layers"}, 12);
  model.heads = config.integer({"n_head", "num_attention_heads"}, 12);
  model.ffn = config.integer("n_inner", 4 * hidden);
  model.vocab = config.integer("vocab_size", 50257);
  model.max_length = config.integer({"n_positions", "max_position_embeddings"}, 1024);
  model.tied_embeddings = config.flag("tie_word_embeddings", true);
  add_stack(model);
  const std::int64_t dim = head_width(hidden, model.heads, "n_head");
  const std::string root = head == Head::Base ? "" : "transformer.";
  builder.linear(root + "wte", hidden, model.vocab, false, "embedding");
  builder.linear(root + "wpe", hidden, model.max_length, false, "position_embedding");
  builder.op("embedding", OpClass::Embedding, hidden, model.vocab);
  builder.op("position_embedding", OpClass::Embedding, hidden, model.max_length);
  builder.add("embedding_add", hidden);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string name = fmt::format("{}h.{}.", root, i);
    const std::string op = fmt::format("layer{}.", i);
    // A Conv1D holds its weight as [in][out].
    const auto conv = [&](const char* module, std::int64_t in, std::int64_t out, const char* of) {
      builder.tensor(name + module + ".weight", {in, out}, op + of);
      builder.tensor(name + module + ".bias", {out}, op + of);
    };
    builder.norm(name + "ln_1", hidden, true, op + "attention_norm");
    conv("attn.c_attn", hidden, 3 * hidden, "qkv");
    conv("attn.c_proj", hidden, hidden, "attention_output");
    builder.norm(name + "ln_2", hidden, true, op + "mlp_norm");
    conv("mlp.c_fc", hidden, model.ffn, "mlp_up");
    conv("mlp.c_proj", model.ffn, hidden, "mlp_down");
    builder.begin(op);
    builder.norm_op("attention_norm", hidden);
    builder.product("qkv", hidden, 3 * hidden);
    builder.attention({model.heads, model.heads, dim, true, 0, 0});
    builder.product("attention_output", hidden, hidden);
    builder.add("attention_residual", hidden);
    builder.norm_op("mlp_norm", hidden);
    mlp_ops(builder);
    builder.add("mlp_residual", hidden);
  }
  builder.begin("");
  builder.norm(root + "ln_f", hidden, true, "final_norm");
  builder.norm_op("final_norm", hidden);
  head_of(config, head, false, builder);
}

void gpt_neox(const ConfigFile& config, Head head, ModelBuilder& builder) {
  DescribedModel& model = builder.model;
  const std::int64_t hidden = config.integer("hidden_size", 6144);
  model.hidden = hidden;
  model.layers = config.integer("num_hidden_layers", 44);
  model.heads = config.integer("num_attention_heads", 64);
  model.ffn = config.integer("intermediate_size", 24576);
  model.vocab = config.integer("vocab_size", 50432);
  model.max_length = config.integer("max_position_embeddings", 2048);
  model.tied_embeddings = config.flag("tie_word_embeddings", false);
  add_stack(model);
  const std::int64_t dim = head_width(hidden, model.heads, "num_attention_heads");
  const bool bias = config.flag("attention_bias", true);
  const bool parallel = config.flag("use_parallel_residual", true);
  const std::string root = head == Head::Base ? "" : "gpt_neox.";
  builder.linear(root + "embed_in", hidden, model.vocab, false, "embedding");
  builder.op("embedding", OpClass::Embedding, hidden, model.vocab);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string name = fmt::format("{}layers.{}.", root, i);
    const std::string op = fmt::format("layer{}.", i);
    builder.norm(name + "input_layernorm", hidden, true, op + "attention_norm");
    builder.norm(name + "post_attention_layernorm", hidden, true, op + "mlp_norm");
    builder.linear(name + "attention.query_key_value", hidden, 3 * hidden, bias, op + "qkv");
    builder.linear(name + "attention.dense", hidden, hidden, bias, op + "attention_output");
    builder.linear(name + "mlp.dense_h_to_4h", hidden, model.ffn, true, op + "mlp_up");
    builder.linear(name + "mlp.dense_4h_to_h", model.ffn, hidden, true, op + "mlp_down");
    builder.begin(op);
    builder.norm_op("attention_norm", hidden);
    builder.product("qkv", hidden, 3 * hidden);
    builder.add("rotary", 2 * hidden);
    builder.attention({model.heads, model.heads, dim, true, 0, 0});
    builder.product("attention_output", hidden, hidden);
    if (!parallel) {
      builder.add("attention_residual", hidden);
    }
    builder.norm_op("mlp_norm", hidden);
    mlp_ops(builder);
    if (parallel) {
      builder.add("attention_residual", hidden);
    }
    builder.add("mlp_residual", hidden);
  }
  builder.begin("");
  builder.norm(root + "final_layer_norm", hidden, true, "final_norm");
  builder.norm_op("final_norm", hidden);
  head_of(config, head, false, builder);
}

/// Phi 1, 1.5 and 2: attention and MLP read the same norm.
void phi(const ConfigFile& config, Head head, ModelBuilder& builder) {
  DescribedModel& model = builder.model;
  const std::int64_t hidden = config.integer("hidden_size", 2048);
  model.hidden = hidden;
  model.layers = config.integer("num_hidden_layers", 24);
  model.heads = config.integer("num_attention_heads", 32);
  const std::int64_t dim = head_width(hidden, model.heads, "num_attention_heads");
  model.ffn = config.integer("intermediate_size", 8192);
  model.vocab = config.integer("vocab_size", 51200);
  model.max_length = config.integer("max_position_embeddings", 2048);
  model.tied_embeddings = config.flag("tie_word_embeddings", false);
  add_stack(model);
  model.kv_heads = config.integer("num_key_value_heads", model.heads);
  const std::int64_t key_width = model.kv_heads * dim;
  model.stacks.front().key_width = key_width;
  const bool norms = config.flag("qk_layernorm", false);
  const std::string root = head == Head::Base ? "" : "model.";
  builder.linear(root + "embed_tokens", hidden, model.vocab, false, "embedding");
  builder.op("embedding", OpClass::Embedding, hidden, model.vocab);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const std::string name = fmt::format("{}layers.{}.", root, i);
    const std::string op = fmt::format("layer{}.", i);
    builder.linear(name + "self_attn.q_proj", hidden, hidden, true, op + "q");
    builder.linear(name + "self_attn.k_proj", hidden, key_width, true, op + "k");
    builder.linear(name + "self_attn.v_proj", hidden, key_width, true, op + "v");
    builder.linear(name + "self_attn.dense", hidden, hidden, true, op + "attention_output");
    if (norms) {
      builder.norm(name + "self_attn.q_layernorm", dim, true, op + "q_norm");
      builder.norm(name + "self_attn.k_layernorm", dim, true, op + "k_norm");
    }
    builder.linear(name + "mlp.fc1", hidden, model.ffn, true, op + "mlp_up");
    builder.linear(name + "mlp.fc2", model.ffn, hidden, true, op + "mlp_down");
    builder.norm(name + "input_layernorm", hidden, true, op + "attention_norm");
    builder.begin(op);
    builder.norm_op("attention_norm", hidden);
    builder.product("q", hidden, hidden);
    builder.product("k", hidden, key_width);
    builder.product("v", hidden, key_width);
    if (norms) {
      builder.norm_op("q_norm", hidden);
      builder.norm_op("k_norm", key_width);
    }
    builder.add("rotary", hidden + key_width);
    builder.attention({model.heads, model.kv_heads, dim, true, 0, 0});
    builder.product("attention_output", hidden, hidden);
    mlp_ops(builder);
    builder.add("attention_residual", hidden);
    builder.add("mlp_residual", hidden);
  }
  builder.begin("");
  builder.norm(root + "final_layernorm", hidden, true, "final_norm");
  builder.norm_op("final_norm", hidden);
  head_of(config, head, true, builder);
}

}  // namespace

std::vector<Family> gpt_families() {
  const std::vector<Head> plain = {Head::CausalLm, Head::Sequence, Head::Tokens, Head::Base};
  std::vector<Head> with_questions = plain;
  with_questions.insert(with_questions.end() - 1, Head::Questions);
  return {{"gpt2", "GPT2", with_questions, gpt2},
          {"gpt_neox", "GPTNeoX", with_questions, gpt_neox},
          {"phi", "Phi", plain, phi}};
}

}  // namespace stepsim

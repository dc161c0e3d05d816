// T5: an encoder and a decoder, with learned distances in the first layer of each.
#include <fmt/format.h>

#include "costmodel/architecture/families.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

class T5Builder {
 public:
  T5Builder(bool multilingual, const ConfigFile& config, Head head, ModelBuilder& builder)
      : config_(config), head_(head), builder_(builder), model_(builder.model) {
    model_.hidden = hidden_ = config.integer({"d_model", "hidden_size"}, 512);
    encoder_layers_ = config.integer({"num_layers", "num_hidden_layers"}, multilingual ? 8 : 6);
    decoder_layers_ = config.integer("num_decoder_layers", encoder_layers_);
    model_.layers = encoder_layers_ + decoder_layers_;
    model_.heads = model_.kv_heads =
        config.integer({"num_heads", "num_attention_heads"}, multilingual ? 6 : 8);
    head_dim_ = config.integer({"d_kv", "head_dim"}, 64);
    model_.ffn = config.integer("d_ff", multilingual ? 1024 : 2048);
    model_.vocab = config.integer("vocab_size", multilingual ? 250112 : 32128);
    buckets_ = config.integer("relative_attention_num_buckets", 32);
    // Distances have no end; the tokenizers of T5 cut at 512 unless told otherwise.
    model_.max_length = std::int64_t{1} << 20;
    model_.tied_embeddings = true;  // Whatever the file says: transformers 5 ties them.
    model_.causal = true;
    const std::string act = config.text("feed_forward_proj", multilingual ? "gated-gelu" : "relu");
    gated_ = act.rfind("gated-", 0) == 0;
    const std::int64_t key_width = model_.heads * head_dim_;
    model_.stacks = {
        {encoder_layers_, hidden_, model_.heads, key_width, model_.ffn, gated_, 0, key_width},
        {decoder_layers_, hidden_, model_.heads, key_width, model_.ffn, gated_, 0, key_width},
        {decoder_layers_, hidden_, model_.heads, key_width, 0, gated_, 0, key_width}};
  }

  void build() {
    builder_.tensor("shared.weight", {model_.vocab, hidden_}, "embedding");
    builder_.op("embedding", OpClass::Embedding, hidden_, model_.vocab);
    stack("encoder", encoder_layers_, false);
    builder_.op("decoder_embedding", OpClass::Embedding, hidden_, model_.vocab);
    stack("decoder", decoder_layers_, true);
    if (head_ == Head::Base) {
      builder_.loss(hidden_);
      return;
    }
    builder_.product("lm_head", hidden_, model_.vocab);
    builder_.loss(model_.vocab);
  }

 private:
  void stack(const std::string& side, std::int64_t layers, bool decodes) {
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string block = fmt::format("{}.block.{}.layer.", side, i);
      const std::string op = fmt::format("{}{}.", side, i);
      const std::string mlp = block + (decodes ? "2" : "1");
      attention_parameters(block + "0.SelfAttention", op, "");
      if (i == 0) {
        builder_.tensor(block + "0.SelfAttention.relative_attention_bias.weight",
                        {buckets_, model_.heads},
                        op + "distances");
      }
      builder_.norm(block + "0.layer_norm", hidden_, false, op + "attention_norm");
      if (decodes) {
        attention_parameters(block + "1.EncDecAttention", op, "cross_");
        builder_.norm(block + "1.layer_norm", hidden_, false, op + "cross_attention_norm");
      }
      mlp_parameters(mlp + ".DenseReluDense.", op);
      builder_.norm(mlp + ".layer_norm", hidden_, false, op + "mlp_norm");
      builder_.begin(op);
      attention_ops("", decodes, i == 0);
      if (decodes) {
        attention_ops("cross_", false, false);
      }
      mlp_ops();
    }
    builder_.begin("");
    const std::string norm = decodes ? "final_norm" : "encoder_norm";
    builder_.norm(side + ".final_layer_norm", hidden_, false, norm);
    builder_.norm_op(norm, hidden_);
  }

  void attention_parameters(const std::string& module,
                            const std::string& op,
                            const std::string& part) {
    const std::int64_t width = model_.heads * head_dim_;
    builder_.linear(module + ".q", hidden_, width, false, op + part + "q");
    builder_.linear(module + ".k", hidden_, width, false, op + part + "k");
    builder_.linear(module + ".v", hidden_, width, false, op + part + "v");
    builder_.linear(module + ".o", width, hidden_, false, op + part + "attention_output");
  }

  void mlp_parameters(const std::string& module, const std::string& op) {
    if (gated_) {
      builder_.linear(module + "wi_0", hidden_, model_.ffn, false, op + "mlp_gate");
      builder_.linear(module + "wi_1", hidden_, model_.ffn, false, op + "mlp_up");
    } else {
      builder_.linear(module + "wi", hidden_, model_.ffn, false, op + "mlp_up");
    }
    builder_.linear(module + "wo", model_.ffn, hidden_, false, op + "mlp_down");
  }

  void attention_ops(const std::string& part, bool causal, bool distances) {
    const std::int64_t width = model_.heads * head_dim_;
    builder_.norm_op(part + "attention_norm", hidden_);
    builder_.product(part + "q", hidden_, width);
    builder_.product(part + "k", hidden_, width);
    builder_.product(part + "v", hidden_, width);
    if (distances) {
      builder_.add("distances", model_.heads);
    }
    builder_.attention({model_.heads, model_.heads, head_dim_, causal, 0, 0}, part + "attention");
    builder_.product(part + "attention_output", width, hidden_);
    builder_.add(part + "attention_residual", hidden_);
  }

  void mlp_ops() {
    builder_.norm_op("mlp_norm", hidden_);
    if (gated_) {
      builder_.product("mlp_gate", hidden_, model_.ffn);
    }
    builder_.product("mlp_up", hidden_, model_.ffn);
    builder_.op("activation", OpClass::Activation, model_.ffn);
    builder_.product("mlp_down", model_.ffn, hidden_);
    builder_.add("mlp_residual", hidden_);
  }

  const ConfigFile& config_;
  Head head_;
  ModelBuilder& builder_;
  DescribedModel& model_;
  std::int64_t hidden_ = 0;
  std::int64_t encoder_layers_ = 0;
  std::int64_t decoder_layers_ = 0;
  std::int64_t head_dim_ = 0;
  std::int64_t buckets_ = 0;
  bool gated_ = false;
};

Family t5(const std::string& model_type, const std::string& prefix, bool multilingual) {
  return {model_type,
          prefix,
          {Head::Generation, Head::Base},
          [=](const ConfigFile& config, Head head, ModelBuilder& builder) {
            T5Builder(multilingual, config, head, builder).build();
          }};
}

}  // namespace

std::vector<Family> t5_families() {
  return {t5("t5", "T5", false), t5("mt5", "MT5", true)};
}

}  // namespace stepsim

// Whisper: an encoder over the frames of 30 seconds, and a decoder over the tokens of the batch.
#include <fmt/format.h>

#include "costmodel/architecture/families.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

class WhisperBuilder {
 public:
  WhisperBuilder(const ConfigFile& config, Head head, ModelBuilder& builder)
      : config_(config), builder_(builder), model_(builder.model) {
    root_ = head == Head::Base ? "" : "model.";
    has_head_ = head != Head::Base;
    model_.hidden = hidden_ = config.integer("d_model", 384);
    encoder_layers_ = config.integer("encoder_layers", 4);
    decoder_layers_ = config.integer("decoder_layers", 4);
    encoder_heads_ = config.integer("encoder_attention_heads", 6);
    model_.heads = model_.kv_heads = config.integer("decoder_attention_heads", 6);
    encoder_ffn_ = config.integer("encoder_ffn_dim", 1536);
    model_.ffn = config.integer("decoder_ffn_dim", 1536);
    model_.layers = encoder_layers_ + decoder_layers_;
    model_.vocab = config.integer("vocab_size", 51865);
    model_.max_length = config.integer("max_target_positions", 448);
    frames_ = config.integer("max_source_positions", 1500);
    model_.tied_embeddings = config.flag("tie_word_embeddings", true);
    model_.causal = true;
    for (const auto& [heads, key] : {std::pair(encoder_heads_, "encoder_attention_heads"),
                                     std::pair(model_.heads, "decoder_attention_heads")}) {
      if (heads < 1 || hidden_ % heads != 0) {
        throw FieldError(key, fmt::format("{} heads do not divide the width {}", heads, hidden_));
      }
    }
    model_.stacks = {
        {encoder_layers_, hidden_, encoder_heads_, hidden_, encoder_ffn_, false, frames_, 0},
        {decoder_layers_, hidden_, model_.heads, hidden_, model_.ffn, false, 0, 0},
        {decoder_layers_, hidden_, model_.heads, hidden_, 0, false, 0, 0}};
  }

  void build() {
    encoder();
    decoder();
  }

 private:
  void encoder() {
    const std::string name = root_ + "encoder.";
    const std::int64_t bins = config_.integer("num_mel_bins", 80);
    constexpr std::int64_t kKernel = 3;
    convolution(name + "conv1", bins, kKernel, 2 * frames_);
    model_.first_products = {"conv1"};
    model_.convolutions = {"conv1", "conv2"};
    convolution(name + "conv2", hidden_, kKernel, frames_);
    builder_.tensor(
        name + "embed_positions.weight", {frames_, hidden_}, "encoder_position_add", true);
    builder_.add("encoder_position_add", hidden_);
    for (std::int64_t i = 0; i < encoder_layers_; ++i) {
      const std::string layer = fmt::format("{}layers.{}.", name, i);
      const std::string op = fmt::format("encoder{}.", i);
      attention_parameters(layer + "self_attn", op, "");
      builder_.norm(layer + "self_attn_layer_norm", hidden_, true, op + "attention_norm");
      mlp_parameters(layer, op, encoder_ffn_);
      builder_.begin(op);
      attention_ops("", encoder_heads_, false);
      mlp_ops(encoder_ffn_);
    }
    builder_.begin("");
    builder_.norm(name + "layer_norm", hidden_, true, "encoder_norm");
    builder_.norm_op("encoder_norm", hidden_);
  }

  void convolution(const std::string& name,
                   std::int64_t in,
                   std::int64_t kernel,
                   std::int64_t frames) {
    const std::string op = name.substr(name.rfind('.') + 1);
    builder_.tensor(name + ".weight", {hidden_, in, kernel}, op);
    builder_.tensor(name + ".bias", {hidden_}, op);
    builder_.rows(RowUnit::Samples, frames);
    builder_.product(op, in * kernel, hidden_);
    builder_.op(op + "_activation", OpClass::Activation, hidden_);
  }

  void decoder() {
    const std::string name = root_ + "decoder.";
    builder_.rows(RowUnit::Tokens);
    builder_.linear(name + "embed_tokens", hidden_, model_.vocab, false, "embedding");
    builder_.linear(
        name + "embed_positions", hidden_, model_.max_length, false, "position_embedding");
    builder_.op("embedding", OpClass::Embedding, hidden_, model_.vocab);
    builder_.op("position_embedding", OpClass::Embedding, hidden_, model_.max_length);
    builder_.add("embedding_add", hidden_);
    for (std::int64_t i = 0; i < decoder_layers_; ++i) {
      const std::string layer = fmt::format("{}layers.{}.", name, i);
      const std::string op = fmt::format("decoder{}.", i);
      attention_parameters(layer + "self_attn", op, "");
      builder_.norm(layer + "self_attn_layer_norm", hidden_, true, op + "attention_norm");
      attention_parameters(layer + "encoder_attn", op, "cross_");
      builder_.norm(layer + "encoder_attn_layer_norm", hidden_, true, op + "cross_attention_norm");
      mlp_parameters(layer, op, model_.ffn);
      builder_.begin(op);
      attention_ops("", model_.heads, true);
      attention_ops("cross_", model_.heads, false);
      mlp_ops(model_.ffn);
    }
    builder_.begin("");
    builder_.norm(name + "layer_norm", hidden_, true, "final_norm");
    builder_.norm_op("final_norm", hidden_);
    if (!has_head_) {
      builder_.loss(hidden_);
      return;
    }
    if (!model_.tied_embeddings) {
      builder_.tensor("proj_out.weight", {model_.vocab, hidden_}, "lm_head");
    }
    builder_.product("lm_head", hidden_, model_.vocab);
    builder_.loss(model_.vocab);
  }

  /// Keys have no bias.
  void attention_parameters(const std::string& module,
                            const std::string& op,
                            const std::string& part) {
    builder_.linear(module + ".k_proj", hidden_, hidden_, false, op + part + "k");
    builder_.linear(module + ".v_proj", hidden_, hidden_, true, op + part + "v");
    builder_.linear(module + ".q_proj", hidden_, hidden_, true, op + part + "q");
    builder_.linear(module + ".out_proj", hidden_, hidden_, true, op + part + "attention_output");
  }

  void mlp_parameters(const std::string& layer, const std::string& op, std::int64_t ffn) {
    builder_.linear(layer + "fc1", hidden_, ffn, true, op + "mlp_up");
    builder_.linear(layer + "fc2", ffn, hidden_, true, op + "mlp_down");
    builder_.norm(layer + "final_layer_norm", hidden_, true, op + "mlp_norm");
  }

  void attention_ops(const std::string& part, std::int64_t heads, bool causal) {
    const bool cross = !part.empty();
    builder_.norm_op(part + "attention_norm", hidden_);
    builder_.product(part + "q", hidden_, hidden_);
    if (cross) {
      builder_.rows(RowUnit::Samples, frames_);
    }
    builder_.product(part + "k", hidden_, hidden_);
    builder_.product(part + "v", hidden_, hidden_);
    if (cross) {
      builder_.rows(RowUnit::Tokens);
    }
    builder_.attention({heads, heads, hidden_ / heads, causal, 0, cross ? frames_ : 0},
                       part + "attention");
    builder_.product(part + "attention_output", hidden_, hidden_);
    builder_.add(part + "attention_residual", hidden_);
  }

  void mlp_ops(std::int64_t ffn) {
    builder_.norm_op("mlp_norm", hidden_);
    builder_.product("mlp_up", hidden_, ffn);
    builder_.op("activation", OpClass::Activation, ffn);
    builder_.product("mlp_down", ffn, hidden_);
    builder_.add("mlp_residual", hidden_);
  }

  const ConfigFile& config_;
  ModelBuilder& builder_;
  DescribedModel& model_;
  std::string root_;
  bool has_head_ = false;
  std::int64_t hidden_ = 0;
  std::int64_t encoder_layers_ = 0;
  std::int64_t decoder_layers_ = 0;
  std::int64_t encoder_heads_ = 0;
  std::int64_t encoder_ffn_ = 0;
  std::int64_t frames_ = 0;
};

}  // namespace

std::vector<Family> speech_families() {
  return {{"whisper",
           "Whisper",
           {Head::Generation, Head::Base},
           [](const ConfigFile& config, Head head, ModelBuilder& builder) {
             WhisperBuilder(config, head, builder).build();
           }}};
}

}  // namespace stepsim

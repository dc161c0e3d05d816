// DeBERTa v2 and v3: attention with scores for what, and for how far away.
#include <algorithm>

#include <fmt/format.h>

#include "costmodel/architecture/families.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

class DebertaBuilder {
 public:
  DebertaBuilder(const ConfigFile& config, Head head, ModelBuilder& builder)
      : config_(config), head_(head), builder_(builder), model_(builder.model) {
    model_.hidden = hidden_ = config.integer("hidden_size", 1536);
    model_.layers = config.integer("num_hidden_layers", 24);
    model_.heads = model_.kv_heads = config.integer("num_attention_heads", 24);
    model_.ffn = config.integer("intermediate_size", 6144);
    model_.vocab = config.integer("vocab_size", 128100);
    model_.max_length = config.integer("max_position_embeddings", 512);
    model_.has_fused_attention = false;
    embedding_ = config.integer("embedding_size", hidden_);
    if (model_.heads < 1 || hidden_ % model_.heads != 0) {
      throw FieldError("num_attention_heads",
                       fmt::format("{} heads do not divide the width {}", model_.heads, hidden_));
    }
    head_dim_ = config.integer("attention_head_size", hidden_ / model_.heads);
    model_.stacks = {
        {model_.layers, hidden_, model_.heads, model_.heads * head_dim_, model_.ffn, false, 0, 0}};
    read_positions();
  }

  void build() {
    root_ = head_ == Head::Base ? "" : "deberta.";
    embeddings();
    relative_embeddings();
    for (std::int64_t i = 0; i < model_.layers; ++i) {
      name_ = fmt::format("{}encoder.layer.{}.", root_, i);
      op_ = fmt::format("layer{}.", i);
      layer();
      if (i == 0 && config_.integer("conv_kernel_size", 0) > 0) {
        convolution_ops();
      }
    }
    builder_.begin("");
    after_layers();
    head();
  }

 private:
  void read_positions() {
    if (!config_.flag("relative_attention", false)) {
      return;
    }
    // -1 stands for the longest input, and for no buckets.
    std::int64_t span = model_.max_length;
    if (config_.is_positive("max_relative_positions")) {
      span = config_.integer("max_relative_positions", span);
    }
    if (config_.is_positive("position_buckets")) {
      span = config_.integer("position_buckets", span);
    }
    positions_ = 2 * span;
    const std::vector<std::string> kinds = config_.words("pos_att_type");
    content_to_position_ = std::ranges::find(kinds, "c2p") != kinds.end();
    position_to_content_ = std::ranges::find(kinds, "p2c") != kinds.end();
    shared_ = config_.flag("share_att_key", false);
    const std::vector<std::string> norms = config_.words("norm_rel_ebd");
    normed_ = std::ranges::find(norms, "layer_norm") != norms.end();
  }

  void embeddings() {
    const std::string name = root_ + "embeddings.";
    const std::int64_t types = config_.integer("type_vocab_size", 0);
    const bool positions = config_.flag("position_biased_input", true);
    builder_.linear(name + "word_embeddings", embedding_, model_.vocab, false, "embedding");
    builder_.op("embedding", OpClass::Embedding, embedding_, model_.vocab);
    if (positions) {
      builder_.linear(
          name + "position_embeddings", embedding_, model_.max_length, false, "position_embedding");
      builder_.op("position_embedding", OpClass::Embedding, embedding_, model_.max_length);
    }
    if (types > 0) {
      builder_.linear(
          name + "token_type_embeddings", embedding_, types, false, "token_type_embedding");
      builder_.op("token_type_embedding", OpClass::Embedding, embedding_, types);
    }
    if (positions || types > 0) {
      builder_.add("embedding_add", embedding_);
    }
    if (embedding_ != hidden_) {
      builder_.linear(name + "embed_proj", embedding_, hidden_, false, "embedding_projection");
      builder_.product("embedding_projection", embedding_, hidden_);
    }
    builder_.norm(name + "LayerNorm", hidden_, true, "embedding_norm");
    builder_.norm_op("embedding_norm", hidden_);
  }

  /// Their parameters follow those of the layers, but they are used first.
  void relative_embeddings() {
    if (positions_ == 0) {
      return;
    }
    builder_.rows(RowUnit::Elements, positions_);
    builder_.add("relative_embedding", hidden_);
    if (normed_) {
      builder_.norm_op("relative_norm", hidden_);
    }
    builder_.rows(RowUnit::Tokens);
  }

  void after_layers() {
    const std::string name = root_ + "encoder.";
    if (positions_ > 0) {
      // The whole table is normalized, so that its gradient comes out of the norm.
      builder_.tensor(name + "rel_embeddings.weight",
                      {positions_, hidden_},
                      normed_ ? "relative_norm" : "relative_embedding");
    }
    if (normed_) {
      builder_.norm(name + "LayerNorm", hidden_, true, "relative_norm");
    }
    if (const std::int64_t kernel = config_.integer("conv_kernel_size", 0); kernel > 0) {
      const std::int64_t groups = std::max<std::int64_t>(config_.integer("conv_groups", 1), 1);
      builder_.tensor(
          name + "conv.conv.weight", {hidden_, hidden_ / groups, kernel}, "convolution");
      builder_.tensor(name + "conv.conv.bias", {hidden_}, "convolution");
      builder_.norm(name + "conv.LayerNorm", hidden_, true, "convolution_norm");
    }
  }

  void convolution_ops() {
    builder_.begin("");
    model_.convolutions = {"convolution"};
    const std::int64_t kernel = config_.integer("conv_kernel_size", 0);
    const std::int64_t groups = std::max<std::int64_t>(config_.integer("conv_groups", 1), 1);
    builder_.product("convolution", kernel * hidden_ / groups, hidden_);
    builder_.op("convolution_activation", OpClass::Activation, hidden_);
    builder_.add("convolution_residual", hidden_);
    builder_.norm_op("convolution_norm", hidden_);
  }

  void layer() {
    const std::int64_t width = model_.heads * head_dim_;
    const std::string self = name_ + "attention.self.";
    builder_.linear(self + "query_proj", hidden_, width, true, op_ + "q");
    builder_.linear(self + "key_proj", hidden_, width, true, op_ + "k");
    builder_.linear(self + "value_proj", hidden_, width, true, op_ + "v");
    if (positions_ > 0 && !shared_) {
      if (content_to_position_) {
        builder_.linear(self + "pos_key_proj", hidden_, width, true, op_ + "position_k");
      }
      if (position_to_content_) {
        builder_.linear(self + "pos_query_proj", hidden_, width, true, op_ + "position_q");
      }
    }
    builder_.linear(
        name_ + "attention.output.dense", width, hidden_, true, op_ + "attention_output");
    builder_.norm(name_ + "attention.output.LayerNorm", hidden_, true, op_ + "attention_norm");
    builder_.linear(name_ + "intermediate.dense", hidden_, model_.ffn, true, op_ + "mlp_up");
    builder_.linear(name_ + "output.dense", model_.ffn, hidden_, true, op_ + "mlp_down");
    builder_.norm(name_ + "output.LayerNorm", hidden_, true, op_ + "mlp_norm");
    builder_.begin(op_);
    builder_.product("q", hidden_, width);
    builder_.product("k", hidden_, width);
    builder_.product("v", hidden_, width);
    positions(width);
    builder_.attention({model_.heads, model_.heads, head_dim_, false, 0, 0});
    builder_.product("attention_output", width, hidden_);
    builder_.add("attention_residual", hidden_);
    builder_.norm_op("attention_norm", hidden_);
    builder_.product("mlp_up", hidden_, model_.ffn);
    builder_.op("activation", OpClass::Activation, model_.ffn);
    builder_.product("mlp_down", model_.ffn, hidden_);
    builder_.add("mlp_residual", hidden_);
    builder_.norm_op("mlp_norm", hidden_);
  }

  /// Scores of each query with all distances, and of each key. Their projections run over the table
  /// of distances, whatever the batch.
  void positions(std::int64_t width) {
    if (positions_ == 0) {
      return;
    }
    const auto project = [&](const char* name) {
      builder_.rows(RowUnit::Elements, positions_);
      builder_.product(name, hidden_, width);
      builder_.rows(RowUnit::Tokens);
    };
    const auto scores = [&](const char* name) {
      Op& op = builder_.op(name, OpClass::AttentionScores, 0);
      op.heads = op.kv_heads = model_.heads;
      op.head_dim = head_dim_;
      op.keys = positions_;
    };
    if (shared_ && (content_to_position_ || position_to_content_)) {
      project("position_q");
      project("position_k");
    } else {
      if (content_to_position_) {
        project("position_k");
      }
      if (position_to_content_) {
        project("position_q");
      }
    }
    if (content_to_position_) {
      scores("content_to_position");
    }
    if (position_to_content_) {
      scores("position_to_content");
    }
  }

  void head() {
    if (head_ == Head::Base) {
      builder_.loss(hidden_);
      return;
    }
    if (head_ == Head::MaskedLm) {
      masked_head();
      return;
    }
    const bool pooled = head_ == Head::Sequence || head_ == Head::MultipleChoice;
    model_.classes = head_ == Head::MultipleChoice ? 1 : config_.labels();
    if (pooled) {
      const std::int64_t width = config_.integer("pooler_hidden_size", hidden_);
      builder_.op("pooling", OpClass::Pooling, hidden_);
      builder_.rows(RowUnit::Samples);
      builder_.linear("pooler.dense", width, width, true, "pooler");
      builder_.product("pooler", width, width);
      builder_.op("head_activation", OpClass::Activation, width);
    }
    builder_.linear(head_ == Head::Questions ? "qa_outputs" : "classifier",
                    hidden_,
                    model_.classes,
                    true,
                    "classifier");
    builder_.product("classifier", hidden_, model_.classes);
    builder_.loss(model_.classes);
  }

  void masked_head() {
    model_.tied_embeddings = config_.flag("tie_word_embeddings", true);
    const bool legacy = config_.flag("legacy", true);
    const std::string name = legacy ? "cls.predictions." : "lm_predictions.lm_head.";
    builder_.tensor(name + "bias", {model_.vocab}, "lm_head");
    builder_.linear(
        name + (legacy ? "transform.dense" : "dense"), hidden_, embedding_, true, "head_dense");
    builder_.norm(
        name + (legacy ? "transform.LayerNorm" : "LayerNorm"), embedding_, true, "head_norm");
    if (legacy && !model_.tied_embeddings) {
      builder_.tensor(name + "decoder.weight", {model_.vocab, embedding_}, "lm_head");
    }
    builder_.product("head_dense", hidden_, embedding_);
    builder_.op("head_activation", OpClass::Activation, embedding_);
    builder_.norm_op("head_norm", embedding_);
    builder_.product("lm_head", embedding_, model_.vocab);
    builder_.loss(model_.vocab);
  }

  const ConfigFile& config_;
  Head head_;
  ModelBuilder& builder_;
  DescribedModel& model_;
  std::string root_;
  std::string name_;
  std::string op_;
  std::int64_t hidden_ = 0;
  std::int64_t embedding_ = 0;
  std::int64_t head_dim_ = 0;
  std::int64_t positions_ = 0;  ///< Rows of the table of distances; 0: there is none.
  bool content_to_position_ = false;
  bool position_to_content_ = false;
  bool shared_ = false;
  bool normed_ = false;
};

}  // namespace

std::vector<Family> deberta_families() {
  return {{"deberta-v2",
           "DebertaV2",
           {Head::MaskedLm,
            Head::Sequence,
            Head::Tokens,
            Head::Questions,
            Head::MultipleChoice,
            Head::Base},
           [](const ConfigFile& config, Head head, ModelBuilder& builder) {
             DebertaBuilder(config, head, builder).build();
           }}};
}

}  // namespace stepsim

#include "costmodel/architecture/decoder_builder.h"

#include <algorithm>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

class DecoderBuilder {
 public:
  DecoderBuilder(const Decoder& kind, const ConfigFile& config, Head head, ModelBuilder& builder)
      : kind_(kind), config_(config), head_(head), builder_(builder), model_(builder.model) {}

  void build() {
    read_sizes();
    const std::string root = head_ == Head::Base ? "" : "model.";
    builder_.linear(root + "embed_tokens", hidden_, model_.vocab, false, "embedding");
    builder_.op("embedding", OpClass::Embedding, hidden_, model_.vocab);
    for (std::int64_t i = 0; i < model_.layers; ++i) {
      layer_ = i;
      op_prefix_ = fmt::format("layer{}.", i);
      name_prefix_ = fmt::format("{}layers.{}.", root, i);
      builder_.begin(op_prefix_);
      layer();
    }
    builder_.begin("");
    builder_.norm(root + "norm", hidden_, false, "final_norm");
    builder_.norm_op("final_norm", hidden_);
    head();
  }

 private:
  void read_sizes() {
    model_.layers = config_.integer("num_hidden_layers", kind_.layers);
    model_.hidden = hidden_ = config_.integer("hidden_size", kind_.hidden);
    model_.heads = config_.integer("num_attention_heads", kind_.heads);
    const std::int64_t kv_heads = kind_.kv_heads > 0 ? kind_.kv_heads : model_.heads;
    model_.kv_heads = config_.is_null("num_key_value_heads")
                          ? model_.heads
                          : config_.integer("num_key_value_heads", kv_heads);
    model_.ffn = config_.integer(
        kind_.experts == Experts::Llama4 ? "intermediate_size_mlp" : "intermediate_size",
        kind_.ffn);
    model_.vocab = config_.integer("vocab_size", kind_.vocab);
    model_.max_length = config_.integer("max_position_embeddings", kind_.max_length);
    model_.tied_embeddings = config_.flag("tie_word_embeddings", kind_.tied);
    model_.causal = true;
    if (model_.heads < 1 || model_.kv_heads < 1) {
      throw FieldError("num_attention_heads", "0 heads; expected at least 1");
    }
    if (model_.heads % model_.kv_heads != 0) {
      throw FieldError("num_key_value_heads",
                       fmt::format("{} do not divide the {} heads", model_.kv_heads, model_.heads));
    }
    const std::int64_t plain = hidden_ / model_.heads;
    head_dim_ = config_.integer("head_dim", kind_.head_dim > 0 ? kind_.head_dim : plain);
    has_attention_bias_ = config_.flag("attention_bias", false);
    layer_types_ = config_.texts("layer_types");
    window_ =
        config_.is_null("sliding_window") ? 0 : config_.integer("sliding_window", kind_.window);
    read_experts();
  }

  void read_experts() {
    if (kind_.experts == Experts::None) {
      return;
    }
    const bool mixtral = kind_.experts == Experts::Mixtral;
    const bool llama = kind_.experts == Experts::Llama4;
    experts_ =
        config_.integer({"num_local_experts", "num_experts"}, mixtral ? 8 : (llama ? 16 : 128));
    active_ = config_.integer("num_experts_per_tok", mixtral ? 2 : (llama ? 1 : 8));
    expert_ffn_ = mixtral ? model_.ffn
                          : (llama ? config_.integer("intermediate_size", 8192)
                                   : config_.integer("moe_intermediate_size", 768));
    if (experts_ > 0 && (active_ < 1 || active_ > experts_)) {
      throw FieldError("num_experts_per_tok",
                       fmt::format("{} of {} experts; expected at least 1", active_, experts_));
    }
  }

  [[nodiscard]] bool is_sparse() const {
    switch (kind_.experts) {
      case Experts::None:
        return false;
      case Experts::Mixtral:
        return true;
      case Experts::Qwen: {
        const auto dense = config_.integers("mlp_only_layers");
        const std::int64_t step =
            std::max<std::int64_t>(config_.integer("decoder_sparse_step", 1), 1);
        return experts_ > 0 && std::ranges::find(dense, layer_) == dense.end() &&
               (layer_ + 1) % step == 0;
      }
      case Experts::Llama4:
        break;
    }
    if (config_.has("moe_layers")) {
      const auto sparse = config_.integers("moe_layers");
      return std::ranges::find(sparse, layer_) != sparse.end();
    }
    const std::int64_t step =
        std::max<std::int64_t>(config_.integer("interleave_moe_layer_step", 1), 1);
    return (layer_ + 1) % step == 0;
  }

  /// The window of this layer; 0: none.
  [[nodiscard]] std::int64_t window() const {
    if (kind_.windows != Windows::None && !layer_types_.empty()) {
      const auto index = static_cast<std::size_t>(layer_);
      return index < layer_types_.size() && layer_types_[index] == "sliding_attention" ? window_
                                                                                       : 0;
    }
    constexpr std::int64_t kPattern = 6;
    switch (kind_.windows) {
      case Windows::None:
        return 0;
      case Windows::All:
        return window_;
      case Windows::AllIfUsed:
        return config_.flag("use_sliding_window", false) ? window_ : 0;
      case Windows::UpperIfUsed: {
        constexpr std::int64_t kWithout = 28;
        return config_.flag("use_sliding_window", false) &&
                       layer_ >= config_.integer("max_window_layers", kWithout)
                   ? window_
                   : 0;
      }
      case Windows::EverySecond:
        return layer_ % 2 == 0 ? window_ : 0;
      case Windows::FiveOfSix:
        break;
    }
    const std::int64_t pattern = std::max<std::int64_t>(
        config_.integer({"sliding_window_pattern", "_sliding_window_pattern"}, kPattern), 1);
    return (layer_ + 1) % pattern != 0 ? window_ : 0;
  }

  [[nodiscard]] std::string op(std::string_view name) const {
    return op_prefix_ + std::string(name);
  }

  void linear(
      const std::string& name, std::int64_t in, std::int64_t out, bool bias, std::string_view of) {
    builder_.linear(name_prefix_ + name, in, out, bias, op(of));
  }

  void layer_norm(const std::string& name, std::string_view of) {
    builder_.norm(name_prefix_ + name, hidden_, false, op(of));
  }

  void layer() {
    attention_parameters();
    const bool sparse = is_sparse();
    sparse ? expert_parameters() : mlp_parameters();
    switch (kind_.norms) {
      case LayerNorms::Before:
        layer_norm("input_layernorm", "attention_norm");
        layer_norm("post_attention_layernorm", "mlp_norm");
        break;
      case LayerNorms::BeforeAndAfter:
        layer_norm("input_layernorm", "attention_norm");
        layer_norm("post_attention_layernorm", "attention_output_norm");
        layer_norm("pre_feedforward_layernorm", "mlp_norm");
        layer_norm("post_feedforward_layernorm", "mlp_output_norm");
        break;
      case LayerNorms::After:
        layer_norm("post_attention_layernorm", "attention_output_norm");
        layer_norm("post_feedforward_layernorm", "mlp_output_norm");
        break;
    }
    attention_ops();
    mlp_ops(sparse);
    add_stack(sparse);
  }

  void attention_parameters() {
    const std::int64_t width = model_.heads * head_dim_;
    const std::int64_t key_width = model_.kv_heads * head_dim_;
    if (kind_.fused) {  // Phi 3 registers the output first, and has no biases.
      linear("self_attn.o_proj", width, hidden_, false, "attention_output");
      linear("self_attn.qkv_proj", hidden_, width + 2 * key_width, false, "qkv");
      return;
    }
    const bool bias = kind_.qkv_bias || has_attention_bias_;
    linear("self_attn.q_proj", hidden_, width, bias, "q");
    linear("self_attn.k_proj", hidden_, key_width, bias, "k");
    linear("self_attn.v_proj", hidden_, key_width, bias, "v");
    linear("self_attn.o_proj", width, hidden_, has_attention_bias_, "attention_output");
    if (kind_.qk_norm != QkNorm::None) {
      const bool whole = kind_.qk_norm == QkNorm::Whole;
      builder_.norm(
          name_prefix_ + "self_attn.q_norm", whole ? width : head_dim_, false, op("q_norm"));
      builder_.norm(
          name_prefix_ + "self_attn.k_norm", whole ? key_width : head_dim_, false, op("k_norm"));
    }
  }

  void gated(const std::string& module, std::int64_t ffn, const std::string& part) {
    const bool bias = config_.flag("mlp_bias", false) && kind_.experts == Experts::None;
    linear(module + "gate_proj", hidden_, ffn, bias, part + "_gate");
    linear(module + "up_proj", hidden_, ffn, bias, part + "_up");
    linear(module + "down_proj", ffn, hidden_, bias, part + "_down");
  }

  void mlp_parameters() {
    if (kind_.fused) {
      linear("mlp.gate_up_proj", hidden_, 2 * model_.ffn, false, "mlp_up");
      linear("mlp.down_proj", model_.ffn, hidden_, false, "mlp_down");
      return;
    }
    gated(kind_.experts == Experts::Llama4 ? "feed_forward." : "mlp.", model_.ffn, "mlp");
  }

  void expert_parameters() {
    const std::int64_t up = 2 * expert_ffn_;
    if (kind_.experts == Experts::Llama4) {
      const std::string module = name_prefix_ + "feed_forward.";
      builder_.tensor(module + "experts.gate_up_proj", {experts_, hidden_, up}, op("experts_up"));
      builder_.tensor(
          module + "experts.down_proj", {experts_, expert_ffn_, hidden_}, op("experts_down"));
      builder_.linear(module + "router", hidden_, experts_, false, op("router"));
      gated("feed_forward.shared_expert.", expert_ffn_, "mlp");
      return;
    }
    const std::string module = name_prefix_ + "mlp.";
    if (kind_.experts == Experts::Mixtral) {
      builder_.linear(module + "gate", hidden_, experts_, false, op("router"));
    }
    builder_.tensor(module + "experts.gate_up_proj", {experts_, up, hidden_}, op("experts_up"));
    builder_.tensor(
        module + "experts.down_proj", {experts_, hidden_, expert_ffn_}, op("experts_down"));
    if (kind_.experts == Experts::Qwen) {
      builder_.linear(module + "gate", hidden_, experts_, false, op("router"));
    }
  }

  void attention_ops() {
    const std::int64_t width = model_.heads * head_dim_;
    const std::int64_t key_width = model_.kv_heads * head_dim_;
    if (kind_.norms != LayerNorms::After) {
      builder_.norm_op("attention_norm", hidden_);
    }
    const bool at_once = kind_.qk_norm == QkNorm::EachHead || kind_.qk_norm == QkNorm::Whole;
    if (kind_.fused) {
      builder_.product("qkv", hidden_, width + 2 * key_width);
    } else {
      builder_.product("q", hidden_, width);
      if (at_once) {
        builder_.norm_op("q_norm", width);
      }
      builder_.product("k", hidden_, key_width);
      if (at_once) {
        builder_.norm_op("k_norm", key_width);
      }
      builder_.product("v", hidden_, key_width);
    }
    if (kind_.qk_norm == QkNorm::EachHeadAfterAll) {
      builder_.norm_op("q_norm", width);
      builder_.norm_op("k_norm", key_width);
    }
    builder_.add("rotary", width + key_width);
    const std::int64_t local = window();
    model_.window = std::max(model_.window, local);
    builder_.attention({model_.heads, model_.kv_heads, head_dim_, true, local, 0});
    builder_.product("attention_output", width, hidden_);
    if (kind_.norms != LayerNorms::Before) {
      builder_.norm_op("attention_output_norm", hidden_);
    }
    builder_.add("attention_residual", hidden_);
  }

  void gated_ops(std::int64_t ffn) {
    builder_.product("mlp_gate", hidden_, ffn);
    builder_.product("mlp_up", hidden_, ffn);
    builder_.op("activation", OpClass::Activation, ffn);
    builder_.product("mlp_down", ffn, hidden_);
  }

  void mlp_ops(bool sparse) {
    if (kind_.norms != LayerNorms::After) {
      builder_.norm_op("mlp_norm", hidden_);
    }
    if (sparse) {
      expert_ops();
    } else if (kind_.fused) {
      builder_.product("mlp_up", hidden_, 2 * model_.ffn);
      builder_.op("activation", OpClass::Activation, model_.ffn);
      builder_.product("mlp_down", model_.ffn, hidden_);
    } else {
      gated_ops(model_.ffn);
    }
    if (kind_.norms != LayerNorms::Before) {
      builder_.norm_op("mlp_output_norm", hidden_);
    }
    builder_.add("mlp_residual", hidden_);
  }

  /// The experts of Llama 4 see all tokens in transformers, those of the others their own.
  void expert_ops() {
    const bool llama = kind_.experts == Experts::Llama4;
    builder_.product("router", hidden_, experts_);
    builder_.rows(RowUnit::Tokens, llama ? experts_ : active_);
    builder_.product("experts_up", hidden_, 2 * expert_ffn_).matrices = experts_;
    builder_.op("experts_activation", OpClass::Activation, expert_ffn_);
    builder_.product("experts_down", expert_ffn_, hidden_).matrices = experts_;
    builder_.rows(RowUnit::Tokens);
    if (llama) {
      gated_ops(expert_ffn_);
    }
    builder_.add("experts_sum", hidden_);
  }

  void add_stack(bool sparse) {
    const std::int64_t passed = !sparse                            ? model_.ffn
                                : kind_.experts == Experts::Llama4 ? (experts_ + 1) * expert_ffn_
                                                                   : active_ * expert_ffn_;
    const LayerStack stack{1,
                           hidden_,
                           model_.heads,
                           model_.kv_heads * head_dim_,
                           passed,
                           true,
                           0,
                           model_.heads * head_dim_};
    if (!model_.stacks.empty() && model_.stacks.back().ffn == passed) {
      ++model_.stacks.back().layers;
    } else {
      model_.stacks.push_back(stack);
    }
  }

  void head() {
    if (head_ == Head::Base) {
      builder_.loss(hidden_);
      return;
    }
    if (head_ == Head::CausalLm) {
      if (!model_.tied_embeddings) {
        builder_.linear("lm_head", hidden_, model_.vocab, false, "lm_head");
      }
      builder_.product("lm_head", hidden_, model_.vocab);
      builder_.loss(model_.vocab);
      return;
    }
    model_.tied_embeddings = false;
    model_.classes = config_.labels();
    builder_.linear("score", hidden_, model_.classes, head_ == Head::Tokens, "classifier");
    builder_.product("classifier", hidden_, model_.classes);
    builder_.loss(model_.classes);
  }

  const Decoder& kind_;
  const ConfigFile& config_;
  Head head_;
  ModelBuilder& builder_;
  DescribedModel& model_;
  std::int64_t layer_ = 0;
  std::string op_prefix_;
  std::string name_prefix_;
  std::int64_t hidden_ = 0;
  std::int64_t head_dim_ = 0;
  std::int64_t window_ = 0;
  std::int64_t experts_ = 0;
  std::int64_t active_ = 0;
  std::int64_t expert_ffn_ = 0;
  bool has_attention_bias_ = false;
  std::vector<std::string> layer_types_;
};

}  // namespace

void build_decoder(const Decoder& kind,
                   const ConfigFile& config,
                   Head head,
                   ModelBuilder& builder) {
  DecoderBuilder(kind, config, head, builder).build();
}

}  // namespace stepsim

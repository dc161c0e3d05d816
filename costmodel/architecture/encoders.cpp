// Encoders with a norm after attention and MLP: BERT and those of its layout, and DistilBERT.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "costmodel/architecture/families.h"
#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

/// Which of the models of BERT's layout.
enum class Layout { Bert, Roberta, XlmRoberta, Electra };

class EncoderBuilder {
 public:
  EncoderBuilder(Layout layout,
                 const std::string& base,
                 std::int64_t vocab,
                 const ConfigFile& config,
                 Head head,
                 ModelBuilder& builder)
      : layout_(layout),
        base_(base),
        config_(config),
        head_(head),
        builder_(builder),
        model_(builder.model) {
    head_is_first_ = layout == Layout::XlmRoberta;
    layout_ = head_is_first_ ? Layout::Roberta : layout;
    const bool electra = layout == Layout::Electra;
    model_.hidden = hidden_ = config.integer("hidden_size", electra ? 256 : 768);
    model_.layers = config.integer("num_hidden_layers", 12);
    model_.heads = model_.kv_heads = config.integer("num_attention_heads", electra ? 4 : 12);
    model_.ffn = config.integer("intermediate_size", electra ? 1024 : 3072);
    model_.vocab = config.integer("vocab_size", vocab);
    model_.max_length = config.integer("max_position_embeddings", 512);
    embedding_ = electra ? config.integer("embedding_size", 128) : hidden_;
    if (model_.heads < 1 || hidden_ % model_.heads != 0) {
      throw FieldError("num_attention_heads",
                       fmt::format("{} heads do not divide the width {}", model_.heads, hidden_));
    }
    for (const char* key : {"is_decoder", "add_cross_attention"}) {
      if (config.flag(key, false)) {
        throw FieldError(key, "true is not known; only encoders are");
      }
    }
    model_.stacks = {{model_.layers, hidden_, model_.heads, hidden_, model_.ffn, false, 0, 0}};
  }

  void build() {
    const std::string root = head_ == Head::Base ? "" : base_;
    embeddings(root);
    for (std::int64_t i = 0; i < model_.layers; ++i) {
      layer(fmt::format("{}encoder.layer.{}.", root, i), fmt::format("layer{}.", i));
    }
    builder_.begin("");
    head(root);
    if (head_is_first_ && !root.empty()) {
      std::stable_partition(model_.parameters.begin(),
                            model_.parameters.end(),
                            [&](const DescribedParameter& described) {
                              return described.parameter.name.rfind(root, 0) != 0;
                            });
    }
  }

 private:
  void embeddings(const std::string& root) {
    const std::string name = root + "embeddings.";
    const std::int64_t types = config_.integer("type_vocab_size", 2);
    const auto positions = [&] {
      builder_.linear(
          name + "position_embeddings", embedding_, model_.max_length, false, "position_embedding");
    };
    builder_.linear(name + "word_embeddings", embedding_, model_.vocab, false, "embedding");
    if (layout_ != Layout::Roberta) {
      positions();
    }
    builder_.linear(
        name + "token_type_embeddings", embedding_, types, false, "token_type_embedding");
    builder_.norm(name + "LayerNorm", embedding_, true, "embedding_norm");
    if (layout_ == Layout::Roberta) {
      positions();
      constexpr std::int64_t kPadding = 2;  // Positions begin after the padding's.
      model_.max_length -= kPadding;
    }
    builder_.op("embedding", OpClass::Embedding, embedding_, model_.vocab);
    builder_.op("token_type_embedding", OpClass::Embedding, embedding_, types);
    builder_.op("position_embedding", OpClass::Embedding, embedding_, model_.max_length);
    builder_.add("embedding_add", embedding_);
    builder_.norm_op("embedding_norm", embedding_);
    if (embedding_ != hidden_) {
      builder_.linear(
          root + "embeddings_project", embedding_, hidden_, true, "embedding_projection");
      builder_.product("embedding_projection", embedding_, hidden_);
    }
  }

  void layer(const std::string& name, const std::string& op) {
    builder_.linear(name + "attention.self.query", hidden_, hidden_, true, op + "q");
    builder_.linear(name + "attention.self.key", hidden_, hidden_, true, op + "k");
    builder_.linear(name + "attention.self.value", hidden_, hidden_, true, op + "v");
    builder_.linear(
        name + "attention.output.dense", hidden_, hidden_, true, op + "attention_output");
    builder_.norm(name + "attention.output.LayerNorm", hidden_, true, op + "attention_norm");
    builder_.linear(name + "intermediate.dense", hidden_, model_.ffn, true, op + "mlp_up");
    builder_.linear(name + "output.dense", model_.ffn, hidden_, true, op + "mlp_down");
    builder_.norm(name + "output.LayerNorm", hidden_, true, op + "mlp_norm");
    builder_.begin(op);
    builder_.product("q", hidden_, hidden_);
    builder_.product("k", hidden_, hidden_);
    builder_.product("v", hidden_, hidden_);
    builder_.attention({model_.heads, model_.heads, hidden_ / model_.heads, false, 0, 0});
    builder_.product("attention_output", hidden_, hidden_);
    builder_.add("attention_residual", hidden_);
    builder_.norm_op("attention_norm", hidden_);
    builder_.product("mlp_up", hidden_, model_.ffn);
    builder_.op("activation", OpClass::Activation, model_.ffn);
    builder_.product("mlp_down", model_.ffn, hidden_);
    builder_.add("mlp_residual", hidden_);
    builder_.norm_op("mlp_norm", hidden_);
  }

  void pooled_layer(const std::string& name, const std::string& op) {
    builder_.linear(name, hidden_, hidden_, true, op);
    builder_.product(op, hidden_, hidden_);
    builder_.op("head_activation", OpClass::Activation, hidden_);
  }

  void pooler(const std::string& root) { pooled_layer(root + "pooler.dense", "pooler"); }

  void classifier(const std::string& name, std::int64_t classes) {
    builder_.linear(name, hidden_, classes, true, "classifier");
    builder_.product("classifier", hidden_, classes);
    builder_.loss(classes);
  }

  void head(const std::string& root) {
    const bool over_tokens =
        head_ == Head::MaskedLm || head_ == Head::Tokens || head_ == Head::Questions;
    if (head_ == Head::MaskedLm || head_ == Head::PreTraining) {
      model_.tied_embeddings = config_.flag("tie_word_embeddings", true);
    }
    if (!over_tokens) {
      builder_.op("pooling", OpClass::Pooling, hidden_);
      builder_.rows(RowUnit::Samples);
    }
    switch (head_) {
      case Head::MaskedLm:
        masked_head();
        return;
      case Head::PreTraining:
        pretraining(root);
        return;
      case Head::Tokens:
      case Head::Questions:
        model_.classes = config_.labels();
        classifier(head_ == Head::Tokens ? "classifier" : "qa_outputs", model_.classes);
        return;
      case Head::MultipleChoice:
        pooler(root);
        model_.classes = 1;
        classifier("classifier", 1);
        return;
      case Head::Sequence:
        model_.classes = config_.labels();
        if (layout_ == Layout::Bert) {
          pooler(root);
          classifier("classifier", model_.classes);
        } else {
          pooled_layer("classifier.dense", "pre_classifier");
          classifier("classifier.out_proj", model_.classes);
        }
        return;
      default:
        break;
    }
    if (layout_ != Layout::Electra) {
      pooler(root);
    }
    builder_.loss(hidden_);
  }

  /// Predicts tokens of the vocabulary by the table of embeddings and a bias.
  void masked_head() {
    const bool bert = layout_ == Layout::Bert;
    const bool electra = layout_ == Layout::Electra;
    const std::string head = bert ? "cls.predictions." : "lm_head.";
    if (electra) {
      builder_.norm("generator_predictions.LayerNorm", embedding_, true, "head_norm");
      builder_.linear("generator_predictions.dense", hidden_, embedding_, true, "head_dense");
      if (!model_.tied_embeddings) {
        builder_.tensor("generator_lm_head.weight", {model_.vocab, embedding_}, "lm_head");
      }
      builder_.tensor("generator_lm_head.bias", {model_.vocab}, "lm_head");
    } else {
      builder_.tensor(head + "bias", {model_.vocab}, "lm_head");
      builder_.linear(
          head + (bert ? "transform.dense" : "dense"), hidden_, hidden_, true, "head_dense");
      builder_.norm(
          head + (bert ? "transform.LayerNorm" : "layer_norm"), hidden_, true, "head_norm");
      if (!model_.tied_embeddings) {
        builder_.linear(head + "decoder", hidden_, model_.vocab, true, "lm_head");
      } else if (head_is_first_) {
        // A shared tensor has the name under which it is registered first.
        DescribedParameter table = std::move(model_.parameters.front());
        table.parameter.name = head + "decoder.weight";
        model_.parameters.erase(model_.parameters.begin());
        model_.parameters.push_back(std::move(table));
      }
    }
    builder_.product("head_dense", hidden_, embedding_);
    builder_.op("head_activation", OpClass::Activation, embedding_);
    builder_.norm_op("head_norm", embedding_);
    builder_.product("lm_head", embedding_, model_.vocab);
    builder_.loss(model_.vocab);
  }

  /// Masked tokens, and whether the second sentence follows the first.
  void pretraining(const std::string& root) {
    pooler(root);
    builder_.rows(RowUnit::Tokens);
    masked_head();
    builder_.rows(RowUnit::Samples);
    builder_.linear("cls.seq_relationship", hidden_, 2, true, "classifier");
    builder_.product("classifier", hidden_, 2);
  }

  Layout layout_;
  bool head_is_first_ = false;  ///< The head is registered before the layers.
  std::string base_;
  const ConfigFile& config_;
  Head head_;
  ModelBuilder& builder_;
  DescribedModel& model_;
  std::int64_t hidden_ = 0;
  std::int64_t embedding_ = 0;
};

class DistilBertBuilder {
 public:
  DistilBertBuilder(const ConfigFile& config, Head head, ModelBuilder& builder)
      : config_(config), head_(head), builder_(builder), model_(builder.model) {
    model_.hidden = hidden_ = config.integer({"dim", "hidden_size"}, 768);
    model_.layers = config.integer({"n_layers", "num_hidden_layers"}, 6);
    model_.heads = model_.kv_heads = config.integer({"n_heads", "num_attention_heads"}, 12);
    model_.ffn = config.integer("hidden_dim", 3072);
    model_.vocab = config.integer("vocab_size", 30522);
    model_.max_length = config.integer("max_position_embeddings", 512);
    if (model_.heads < 1 || hidden_ % model_.heads != 0) {
      throw FieldError("n_heads",
                       fmt::format("{} heads do not divide the width {}", model_.heads, hidden_));
    }
    model_.stacks = {{model_.layers, hidden_, model_.heads, hidden_, model_.ffn, false, 0, 0}};
  }

  void build() {
    const std::string root = head_ == Head::Base ? "" : "distilbert.";
    const std::string name = root + "embeddings.";
    builder_.linear(name + "word_embeddings", hidden_, model_.vocab, false, "embedding");
    builder_.linear(
        name + "position_embeddings", hidden_, model_.max_length, false, "position_embedding");
    builder_.norm(name + "LayerNorm", hidden_, true, "embedding_norm");
    builder_.op("embedding", OpClass::Embedding, hidden_, model_.vocab);
    builder_.op("position_embedding", OpClass::Embedding, hidden_, model_.max_length);
    builder_.add("embedding_add", hidden_);
    builder_.norm_op("embedding_norm", hidden_);
    for (std::int64_t i = 0; i < model_.layers; ++i) {
      layer(fmt::format("{}transformer.layer.{}.", root, i), fmt::format("layer{}.", i));
    }
    builder_.begin("");
    head();
  }

 private:
  void layer(const std::string& name, const std::string& op) {
    builder_.linear(name + "attention.q_lin", hidden_, hidden_, true, op + "q");
    builder_.linear(name + "attention.k_lin", hidden_, hidden_, true, op + "k");
    builder_.linear(name + "attention.v_lin", hidden_, hidden_, true, op + "v");
    builder_.linear(name + "attention.out_lin", hidden_, hidden_, true, op + "attention_output");
    builder_.norm(name + "sa_layer_norm", hidden_, true, op + "attention_norm");
    builder_.linear(name + "ffn.lin1", hidden_, model_.ffn, true, op + "mlp_up");
    builder_.linear(name + "ffn.lin2", model_.ffn, hidden_, true, op + "mlp_down");
    builder_.norm(name + "output_layer_norm", hidden_, true, op + "mlp_norm");
    builder_.begin(op);
    builder_.product("q", hidden_, hidden_);
    builder_.product("k", hidden_, hidden_);
    builder_.product("v", hidden_, hidden_);
    builder_.attention({model_.heads, model_.heads, hidden_ / model_.heads, false, 0, 0});
    builder_.product("attention_output", hidden_, hidden_);
    builder_.add("attention_residual", hidden_);
    builder_.norm_op("attention_norm", hidden_);
    builder_.product("mlp_up", hidden_, model_.ffn);
    builder_.op("activation", OpClass::Activation, model_.ffn);
    builder_.product("mlp_down", model_.ffn, hidden_);
    builder_.add("mlp_residual", hidden_);
    builder_.norm_op("mlp_norm", hidden_);
  }

  void head() {
    if (head_ == Head::MaskedLm) {
      model_.tied_embeddings = config_.flag("tie_word_embeddings", true);
      builder_.linear("vocab_transform", hidden_, hidden_, true, "head_dense");
      builder_.norm("vocab_layer_norm", hidden_, true, "head_norm");
      if (!model_.tied_embeddings) {
        builder_.tensor("vocab_projector.weight", {model_.vocab, hidden_}, "lm_head");
      }
      builder_.tensor("vocab_projector.bias", {model_.vocab}, "lm_head");
      builder_.product("head_dense", hidden_, hidden_);
      builder_.op("head_activation", OpClass::Activation, hidden_);
      builder_.norm_op("head_norm", hidden_);
      builder_.product("lm_head", hidden_, model_.vocab);
      builder_.loss(model_.vocab);
      return;
    }
    if (head_ == Head::Base) {
      builder_.loss(hidden_);
      return;
    }
    const bool pooled = head_ == Head::Sequence || head_ == Head::MultipleChoice;
    model_.classes = head_ == Head::MultipleChoice ? 1 : config_.labels();
    if (pooled) {
      builder_.op("pooling", OpClass::Pooling, hidden_);
      builder_.rows(RowUnit::Samples);
      builder_.linear("pre_classifier", hidden_, hidden_, true, "pre_classifier");
      builder_.product("pre_classifier", hidden_, hidden_);
      builder_.op("head_activation", OpClass::Activation, hidden_);
    }
    builder_.linear(head_ == Head::Questions ? "qa_outputs" : "classifier",
                    hidden_,
                    model_.classes,
                    true,
                    "classifier");
    builder_.product("classifier", hidden_, model_.classes);
    builder_.loss(model_.classes);
  }

  const ConfigFile& config_;
  Head head_;
  ModelBuilder& builder_;
  DescribedModel& model_;
  std::int64_t hidden_ = 0;
};

Family encoder(const std::string& model_type,
               const std::string& prefix,
               Layout layout,
               const std::string& base,
               std::int64_t vocab,
               std::vector<Head> heads) {
  return {model_type,
          prefix,
          std::move(heads),
          [=](const ConfigFile& config, Head head, ModelBuilder& builder) {
            EncoderBuilder(layout, base, vocab, config, head, builder).build();
          }};
}

}  // namespace

std::vector<Family> encoder_families() {
  const std::vector<Head> heads = {Head::MaskedLm,
                                   Head::Sequence,
                                   Head::Tokens,
                                   Head::Questions,
                                   Head::MultipleChoice,
                                   Head::Base};
  std::vector<Head> bert = heads;
  bert.push_back(Head::PreTraining);
  const std::vector<Head> electra = {
      Head::MaskedLm, Head::Sequence, Head::Tokens, Head::Questions, Head::Base};
  constexpr std::int64_t kBertVocab = 30522;
  constexpr std::int64_t kRobertaVocab = 50265;
  constexpr std::int64_t kCamembertVocab = 30522;
  return {encoder("bert", "Bert", Layout::Bert, "bert.", kBertVocab, bert),
          encoder("roberta", "Roberta", Layout::Roberta, "roberta.", kRobertaVocab, heads),
          encoder("xlm-roberta", "XLMRoberta", Layout::XlmRoberta, "roberta.", kBertVocab, heads),
          encoder("camembert", "Camembert", Layout::XlmRoberta, "roberta.", kCamembertVocab, heads),
          encoder("electra", "Electra", Layout::Electra, "electra.", kBertVocab, electra),
          {"distilbert",
           "DistilBert",
           heads,
           [](const ConfigFile& config, Head head, ModelBuilder& builder) {
             DistilBertBuilder(config, head, builder).build();
           }}};
}

}  // namespace stepsim

#include <utility>

#include <fmt/format.h>

#include "costmodel/base/mapped.h"
#include "costmodel/model/last_made.h"
#include "costmodel/model/transformer_layout.h"

namespace stepsim {
namespace {

/// Builds the list of parameters. Names follow the published state_dict of each family.
class ParameterList {
 public:
  explicit ParameterList(const TransformerConfig& config) : config_(config) {}

  std::vector<OwnedParameter> take() { return std::move(list_); }

  void tensor(const std::string& name, std::vector<std::int64_t> shape, const std::string& op) {
    Parameter parameter;
    parameter.name = name;
    parameter.shape = std::move(shape);
    parameter.dtype = config_.parameter_dtype;
    list_.push_back({std::move(parameter), op});
  }
  /// Sets the dtype of the last tensor.
  void set_dtype(Dtype dtype) { list_.back().parameter.dtype = dtype; }
  void weight(const std::string& name,
              std::int64_t rows,
              std::int64_t columns,
              const std::string& op) {
    tensor(name + ".weight", {rows, columns}, op);
  }
  /// Adds an nn.Linear: weight [out][in] and bias.
  void linear(const std::string& name, std::int64_t in, std::int64_t out, const std::string& op) {
    weight(name, out, in, op);
    tensor(name + ".bias", {out}, op);
  }
  /// Adds a Conv1D of GPT-2: weight [in][out] and bias.
  void conv1d(const std::string& name, std::int64_t in, std::int64_t out, const std::string& op) {
    weight(name, in, out, op);
    tensor(name + ".bias", {out}, op);
  }
  void norm(const std::string& name, const std::string& op) {
    tensor(name + ".weight", {config_.hidden}, op);
    tensor(name + ".bias", {config_.hidden}, op);
  }

 private:
  const TransformerConfig& config_;
  std::vector<OwnedParameter> list_;
};

std::string layer_op(std::int64_t layer, std::string_view op) {
  return fmt::format("layer{}.{}", layer, op);
}

/// The token-skew lab's classifier, with any number of layers.
void token_classifier(const TransformerConfig& c, ParameterList& list) {
  list.weight("embedding", c.vocab, c.hidden, "embedding");
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("layers.{}.", i);
    list.norm(p + "norm1", layer_op(i, "attention_norm"));
    list.linear(p + "qkv", c.hidden, 3 * c.hidden, layer_op(i, "qkv"));
    list.linear(p + "proj", c.hidden, c.hidden, layer_op(i, "attention_output"));
    list.norm(p + "norm2", layer_op(i, "mlp_norm"));
    list.linear(p + "fc1", c.hidden, c.ffn, layer_op(i, "mlp_up"));
    list.linear(p + "fc2", c.ffn, c.hidden, layer_op(i, "mlp_down"));
  }
  if (c.classes > 0) {
    list.linear("classifier", c.hidden, c.classes, "classifier");
  }
}

/// DistilBertForSequenceClassification of transformers, or DistilBertModel without classes.
void distilbert(const TransformerConfig& c, ParameterList& list) {
  const std::string prefix = c.classes > 0 ? "distilbert." : "";
  const std::string embeddings = prefix + "embeddings.";
  list.weight(embeddings + "word_embeddings", c.vocab, c.hidden, "embedding");
  list.weight(embeddings + "position_embeddings", c.max_length, c.hidden, "position_embedding");
  list.norm(embeddings + "LayerNorm", "embedding_norm");
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("{}transformer.layer.{}.", prefix, i);
    list.linear(p + "attention.q_lin", c.hidden, c.hidden, layer_op(i, "q"));
    list.linear(p + "attention.k_lin", c.hidden, c.hidden, layer_op(i, "k"));
    list.linear(p + "attention.v_lin", c.hidden, c.hidden, layer_op(i, "v"));
    list.linear(p + "attention.out_lin", c.hidden, c.hidden, layer_op(i, "attention_output"));
    list.norm(p + "sa_layer_norm", layer_op(i, "attention_norm"));
    list.linear(p + "ffn.lin1", c.hidden, c.ffn, layer_op(i, "mlp_up"));
    list.linear(p + "ffn.lin2", c.ffn, c.hidden, layer_op(i, "mlp_down"));
    list.norm(p + "output_layer_norm", layer_op(i, "mlp_norm"));
  }
  if (c.classes > 0) {
    list.linear("pre_classifier", c.hidden, c.hidden, "pre_classifier");
    list.linear("classifier", c.hidden, c.classes, "classifier");
  }
}

/// BertModel of transformers with its pooler, or BertForSequenceClassification with classes.
void bert(const TransformerConfig& c, ParameterList& list) {
  const std::string prefix = c.classes > 0 ? "bert." : "";
  const std::string embeddings = prefix + "embeddings.";
  constexpr std::int64_t kTokenTypes = 2;
  list.weight(embeddings + "word_embeddings", c.vocab, c.hidden, "embedding");
  list.weight(embeddings + "position_embeddings", c.max_length, c.hidden, "position_embedding");
  list.weight(embeddings + "token_type_embeddings", kTokenTypes, c.hidden, "token_type_embedding");
  list.norm(embeddings + "LayerNorm", "embedding_norm");
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("{}encoder.layer.{}.", prefix, i);
    list.linear(p + "attention.self.query", c.hidden, c.hidden, layer_op(i, "q"));
    list.linear(p + "attention.self.key", c.hidden, c.hidden, layer_op(i, "k"));
    list.linear(p + "attention.self.value", c.hidden, c.hidden, layer_op(i, "v"));
    list.linear(p + "attention.output.dense", c.hidden, c.hidden, layer_op(i, "attention_output"));
    list.norm(p + "attention.output.LayerNorm", layer_op(i, "attention_norm"));
    list.linear(p + "intermediate.dense", c.hidden, c.ffn, layer_op(i, "mlp_up"));
    list.linear(p + "output.dense", c.ffn, c.hidden, layer_op(i, "mlp_down"));
    list.norm(p + "output.LayerNorm", layer_op(i, "mlp_norm"));
  }
  list.linear(prefix + "pooler.dense", c.hidden, c.hidden, "pooler");
  if (c.classes > 0) {
    list.linear("classifier", c.hidden, c.classes, "classifier");
  }
}

/// GPT2LMHeadModel of transformers.
void gpt2(const TransformerConfig& c, ParameterList& list) {
  list.weight("transformer.wte", c.vocab, c.hidden, "embedding");
  list.weight("transformer.wpe", c.max_length, c.hidden, "position_embedding");
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("transformer.h.{}.", i);
    list.norm(p + "ln_1", layer_op(i, "attention_norm"));
    list.conv1d(p + "attn.c_attn", c.hidden, 3 * c.hidden, layer_op(i, "qkv"));
    list.conv1d(p + "attn.c_proj", c.hidden, c.hidden, layer_op(i, "attention_output"));
    list.norm(p + "ln_2", layer_op(i, "mlp_norm"));
    list.conv1d(p + "mlp.c_fc", c.hidden, c.ffn, layer_op(i, "mlp_up"));
    list.conv1d(p + "mlp.c_proj", c.ffn, c.hidden, layer_op(i, "mlp_down"));
  }
  list.norm("transformer.ln_f", "final_norm");
  if (!c.tied_embeddings) {
    list.weight("lm_head", c.vocab, c.hidden, "lm_head");
  }
}

/// LlamaForCausalLM of transformers, which has no biases; its RMS norms have a weight only.
void llama(const TransformerConfig& c, ParameterList& list) {
  const std::int64_t kv_width = c.kv_heads * c.head_dim();
  list.weight("model.embed_tokens", c.vocab, c.hidden, "embedding");
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("model.layers.{}.", i);
    list.weight(p + "self_attn.q_proj", c.hidden, c.hidden, layer_op(i, "q"));
    list.weight(p + "self_attn.k_proj", kv_width, c.hidden, layer_op(i, "k"));
    list.weight(p + "self_attn.v_proj", kv_width, c.hidden, layer_op(i, "v"));
    list.weight(p + "self_attn.o_proj", c.hidden, c.hidden, layer_op(i, "attention_output"));
    list.weight(p + "mlp.gate_proj", c.ffn, c.hidden, layer_op(i, "mlp_gate"));
    list.weight(p + "mlp.up_proj", c.ffn, c.hidden, layer_op(i, "mlp_up"));
    list.weight(p + "mlp.down_proj", c.hidden, c.ffn, layer_op(i, "mlp_down"));
    list.tensor(p + "input_layernorm.weight", {c.hidden}, layer_op(i, "attention_norm"));
    list.tensor(p + "post_attention_layernorm.weight", {c.hidden}, layer_op(i, "mlp_norm"));
  }
  list.tensor("model.norm.weight", {c.hidden}, "final_norm");
  if (!c.tied_embeddings) {
    list.weight("lm_head", c.vocab, c.hidden, "lm_head");
  }
}

/// The GPT of karpathy/nanochat, which has matrices only; its norms have no parameters.
void nanochat(const TransformerConfig& c, ParameterList& list) {
  const std::int64_t kv_width = c.kv_heads * c.head_dim();
  list.weight("transformer.wte", c.vocab, c.hidden, "embedding");
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("transformer.h.{}.", i);
    list.weight(p + "attn.c_q", c.hidden, c.hidden, layer_op(i, "q"));
    list.weight(p + "attn.c_k", kv_width, c.hidden, layer_op(i, "k"));
    list.weight(p + "attn.c_v", kv_width, c.hidden, layer_op(i, "v"));
    list.weight(p + "attn.c_proj", c.hidden, c.hidden, layer_op(i, "attention_output"));
    list.weight(p + "mlp.c_fc", c.ffn, c.hidden, layer_op(i, "mlp_up"));
    list.weight(p + "mlp.c_proj", c.hidden, c.ffn, layer_op(i, "mlp_down"));
  }
  if (!c.tied_embeddings) {
    list.weight("lm_head", c.vocab, c.hidden, "lm_head");
  }
}

void blocks(const TransformerConfig& c, ParameterList& list) {
  for (const TensorBlock& tensor : c.tensors) {
    list.tensor(tensor.name, tensor.shape, tensor.name);
    list.set_dtype(tensor.dtype.value_or(c.parameter_dtype));
  }
  if (!c.tensors.empty()) {
    return;
  }
  for (std::int64_t i = 0; i < c.layers; ++i) {
    list.tensor(fmt::format("block{}.weight", i), {c.block_elements}, fmt::format("block{}", i));
  }
}

void transformers(const TransformerConfig& c, ParameterList& list) {
  for (DescribedParameter& described : described(c).parameters) {
    if (!described.frozen) {
      Parameter& parameter = described.parameter;
      list.tensor(parameter.name, std::move(parameter.shape), described.op);
    }
  }
}

std::vector<OwnedParameter> listed_parameters(const TransformerConfig& config) {
  check(config);
  ParameterList list(config);
  switch (config.family) {
    case ModelFamily::TokenClassifier:
      token_classifier(config, list);
      break;
    case ModelFamily::DistilBert:
      distilbert(config, list);
      break;
    case ModelFamily::Bert:
      bert(config, list);
      break;
    case ModelFamily::Gpt2:
      gpt2(config, list);
      break;
    case ModelFamily::Llama:
      llama(config, list);
      break;
    case ModelFamily::Nanochat:
      nanochat(config, list);
      break;
    case ModelFamily::Blocks:
      blocks(config, list);
      break;
    case ModelFamily::Transformers:
      transformers(config, list);
      break;
  }
  std::vector<OwnedParameter> owned = list.take();
  if (config.sparse_embeddings) {
    owned.front().parameter.sparse = true;
  }
  return owned;
}

}  // namespace

const std::vector<OwnedParameter>& owned_parameters(const TransformerConfig& config) {
  thread_local LastMade<TransformerConfig, std::vector<OwnedParameter>> last;
  return last.get(config, [&] { return listed_parameters(config); });
}

std::vector<Parameter> parameters(const TransformerConfig& config) {
  return mapped(owned_parameters(config), &OwnedParameter::parameter);
}

std::vector<Parameter> frozen_parameters(const TransformerConfig& config) {
  std::vector<Parameter> frozen = config.frozen;
  if (config.family == ModelFamily::Transformers) {
    for (DescribedParameter& described : described(config).parameters) {
      if (described.frozen) {
        frozen.push_back(std::move(described.parameter));
      }
    }
  }
  return frozen;
}

std::int64_t parameter_count(const TransformerConfig& config) {
  return sum_of(owned_parameters(config),
                [](const OwnedParameter& owned) { return owned.parameter.elements(); });
}

}  // namespace stepsim

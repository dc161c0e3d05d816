#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "costmodel/base/index.h"
#include "costmodel/model/last_made.h"
#include "costmodel/model/transformer_layout.h"

namespace stepsim {
namespace {

/// Builds the list of forward ops in the order that StepOps documents.
class ForwardList {
 public:
  explicit ForwardList(const TransformerConfig& config) : config_(config) {}

  std::vector<Op> build() {
    embeddings();
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      prefix_ = fmt::format("layer{}.", i);
      attention_part();
      mlp_part();
    }
    prefix_.clear();
    head();
    return std::move(ops_);
  }

 private:
  Op& add(std::string_view name, OpClass op_class, std::int64_t n, std::int64_t k = 0) {
    Op op;
    op.name = prefix_ + std::string(name);
    op.op_class = op_class;
    op.n = n;
    op.k = k;
    op.dtype = config_.dtype;
    op.varlen = config_.attention == AttentionKind::Varlen;
    ops_.push_back(std::move(op));
    return ops_.back();
  }

  void embeddings() {
    constexpr std::int64_t kTokenTypes = 2;
    add("embedding", OpClass::Embedding, config_.hidden, config_.vocab);
    if (position_table(config_.family)) {
      if (config_.family == ModelFamily::Bert) {
        add("token_type_embedding", OpClass::Embedding, config_.hidden, kTokenTypes);
      }
      add("position_embedding", OpClass::Embedding, config_.hidden, config_.max_length);
      add("embedding_add", OpClass::Elementwise, config_.hidden);
    }
    if (!pre_norm(config_.family) || config_.family == ModelFamily::Nanochat) {
      add("embedding_norm", OpClass::Norm, config_.hidden);
    }
  }

  void attention_op(std::string_view name, OpClass op_class) {
    Op& op = add(name, op_class, 0);
    op.heads = config_.heads;
    op.kv_heads = config_.kv_heads;
    op.head_dim = config_.head_dim();
    op.causal = config_.causal;
    op.window = op_class == OpClass::Attention ? config_.window : 0;
  }

  void attention_part() {
    const std::int64_t hidden = config_.hidden;
    const std::int64_t kv_width = config_.kv_heads * config_.head_dim();
    if (pre_norm(config_.family)) {
      add("attention_norm", OpClass::Norm, hidden);
    }
    if (fused_qkv(config_.family)) {
      add("qkv", OpClass::Gemm, hidden + 2 * kv_width, hidden);
    } else {
      add("q", OpClass::Gemm, hidden, hidden);
      add("k", OpClass::Gemm, kv_width, hidden);
      add("v", OpClass::Gemm, kv_width, hidden);
    }
    if (rotary(config_.family)) {
      add("rotary", OpClass::Elementwise, hidden + kv_width);
    }
    if (config_.attention == AttentionKind::Dense) {
      attention_op("scores", OpClass::AttentionScores);
      attention_op("softmax", OpClass::Softmax);
      attention_op("context", OpClass::AttentionContext);
    } else {
      attention_op("attention", OpClass::Attention);
    }
    add("attention_output", OpClass::Gemm, hidden, hidden);
    add("attention_residual", OpClass::Elementwise, hidden);
    if (!pre_norm(config_.family)) {
      add("attention_norm", OpClass::Norm, hidden);
    }
  }

  void mlp_part() {
    if (pre_norm(config_.family)) {
      add("mlp_norm", OpClass::Norm, config_.hidden);
    }
    if (config_.family == ModelFamily::Llama) {
      add("mlp_gate", OpClass::Gemm, config_.ffn, config_.hidden);
    }
    add("mlp_up", OpClass::Gemm, config_.ffn, config_.hidden);
    add("activation", OpClass::Activation, config_.ffn);
    add("mlp_down", OpClass::Gemm, config_.hidden, config_.ffn);
    add("mlp_residual", OpClass::Elementwise, config_.hidden);
    if (!pre_norm(config_.family)) {
      add("mlp_norm", OpClass::Norm, config_.hidden);
    }
  }

  void head() {
    if (language_model(config_.family)) {
      add("final_norm", OpClass::Norm, config_.hidden);
      add("lm_head", OpClass::Gemm, config_.vocab, config_.hidden);
      add("loss", OpClass::CrossEntropy, config_.vocab);
      return;
    }
    add("pooling", OpClass::Pooling, config_.hidden);
    const bool classifies = config_.classes > 0;
    if (config_.family == ModelFamily::Bert) {
      head_layer("pooler");
    } else if (config_.family == ModelFamily::DistilBert && classifies) {
      head_layer("pre_classifier");
    }
    if (classifies) {
      add("classifier", OpClass::Gemm, config_.classes, config_.hidden).rows = RowUnit::Samples;
    }
    add("loss", OpClass::CrossEntropy, classifies ? config_.classes : config_.hidden).rows =
        RowUnit::Samples;
  }

  void head_layer(std::string_view name) {
    add(name, OpClass::Gemm, config_.hidden, config_.hidden).rows = RowUnit::Samples;
    add("head_activation", OpClass::Activation, config_.hidden).rows = RowUnit::Samples;
  }

  const TransformerConfig& config_;
  std::string prefix_;
  std::vector<Op> ops_;
};

std::vector<Op> block_ops(const TransformerConfig& config) {
  std::vector<Op> ops;
  for (std::int64_t block = 0; block < config.layers; ++block) {
    ops.push_back(elements_op(OpClass::Elementwise, config.block_elements, config.dtype));
    ops.back().name = "block" + std::to_string(block);
    ops.back().varlen = config.attention == AttentionKind::Varlen;
  }
  return ops;
}

/// Builds the ops of a Blocks model: one op a tensor, with its own work in each pass.
StepOps tensor_ops(const TransformerConfig& config) {
  StepOps result;
  const auto add = [&](std::vector<Op>& list, const TensorBlock& tensor, std::int64_t work) -> Op& {
    list.push_back(elements_op(OpClass::Elementwise, work, config.dtype));
    list.back().name = tensor.name;
    list.back().varlen = config.attention == AttentionKind::Varlen;
    return list.back();
  };
  for (std::size_t i = 0; i < config.tensors.size(); ++i) {
    add(result.forward, config.tensors[i], config.tensors[i].forward);
  }
  for (std::size_t i = config.tensors.size(); i-- > 0;) {
    Op& op = add(result.backward, config.tensors[i], config.tensors[i].backward);
    op.pass = Pass::Backward;
    op.completes = {static_cast<int>(i)};
  }
  return result;
}

/// Maps each op to the parameters that it uses, by ascending index.
std::map<std::string, std::vector<int>> parameters_by_op(const std::vector<OwnedParameter>& list) {
  std::map<std::string, std::vector<int>> result;
  for (std::size_t i = 0; i < list.size(); ++i) {
    result[list[i].op].push_back(static_cast<int>(i));
  }
  return result;
}

/// Whether the gradients of an op become ready in the order of registration: those of a norm and of
/// a convolution, whose backward hands out weight, then bias. A linear layer's bias comes first,
/// since its weight passes a transposition.
bool weight_is_first(const Op& op, const std::vector<std::string>& convolutions) {
  return op.op_class == OpClass::Norm ||
         std::ranges::find(convolutions, op.name) != convolutions.end();
}

StepOps listed_ops(const TransformerConfig& config) {
  if (!config.tensors.empty()) {
    check(config);
    return tensor_ops(config);
  }
  const std::vector<OwnedParameter> list = owned_parameters(config);
  auto owned = parameters_by_op(list);
  StepOps result;
  std::vector<std::string> fed_with_data;
  std::vector<std::string> convolutions;
  if (config.family == ModelFamily::Transformers) {
    DescribedModel model = described(config);
    result.forward = std::move(model.forward);
    fed_with_data = std::move(model.first_products);
    convolutions = std::move(model.convolutions);
  } else {
    result.forward =
        config.family == ModelFamily::Blocks ? block_ops(config) : ForwardList(config).build();
  }
  for (Op& op : result.forward) {
    const auto own = owned.find(op.name);
    op.biased = op.op_class == OpClass::Gemm && own != owned.end() &&
                std::ranges::any_of(own->second, [&](int parameter) {
                  return list[at(parameter)].parameter.shape.size() == 1;
                });
  }
  for (auto forward = result.forward.rbegin(); forward != result.forward.rend(); ++forward) {
    Op op = *forward;
    op.pass = Pass::Backward;
    if (op.op_class == OpClass::Gemm) {
      op.pass = Pass::InputGradient;
      if (std::ranges::find(fed_with_data, op.name) == fed_with_data.end()) {
        result.backward.push_back(op);
      }
      op.pass = Pass::WeightGradient;
    }
    if (const auto found = owned.find(op.name); found != owned.end()) {
      op.completes = std::move(found->second);
      if (!weight_is_first(op, convolutions)) {
        std::ranges::reverse(op.completes);
      }
    }
    result.backward.push_back(std::move(op));
  }
  return result;
}

/// The ops stay until this thread asks for those of another model.
const StepOps& known_ops(const TransformerConfig& config) {
  thread_local LastMade<TransformerConfig, StepOps> last;
  return last.get(config, [&] { return listed_ops(config); });
}

}  // namespace

StepOps step_ops(const TransformerConfig& config) {
  return known_ops(config);
}

std::string_view layer_of(const Op& op, ModelFamily family) {
  const std::string_view name = op.name;
  const std::size_t dot = name.find('.');
  return dot == std::string_view::npos && family != ModelFamily::Blocks ? std::string_view{}
                                                                        : name.substr(0, dot);
}

std::vector<int> ready_order(const TransformerConfig& config) {
  std::vector<int> order;
  for (const Op& op : known_ops(config).backward) {
    order.insert(order.end(), op.completes.begin(), op.completes.end());
  }
  return order;
}

Op elements_op(OpClass op_class, std::int64_t elements, Dtype dtype) {
  Op op;
  op.name = name_of(op_class);
  op.op_class = op_class;
  op.rows = RowUnit::Elements;
  op.n = elements;
  op.dtype = dtype;
  return op;
}

Op collate_op() {
  Op op;
  op.name = name_of(OpClass::Collate);
  op.op_class = OpClass::Collate;
  return op;
}

}  // namespace stepsim

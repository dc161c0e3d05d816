#include "costmodel/architecture/model_builder.h"

namespace stepsim {

void ModelBuilder::tensor(const std::string& name,
                          std::vector<std::int64_t> shape,
                          const std::string& op,
                          bool frozen) {
  DescribedParameter described;
  described.parameter.name = name;
  described.parameter.shape = std::move(shape);
  described.parameter.dtype = run_.parameter_dtype;
  described.op = op;
  described.frozen = frozen;
  model.parameters.push_back(std::move(described));
}

void ModelBuilder::linear(
    const std::string& name, std::int64_t in, std::int64_t out, bool bias, const std::string& op) {
  tensor(name + ".weight", {out, in}, op);
  if (bias) {
    tensor(name + ".bias", {out}, op);
  }
}

void ModelBuilder::norm(const std::string& name,
                        std::int64_t width,
                        bool bias,
                        const std::string& op) {
  tensor(name + ".weight", {width}, op);
  if (bias) {
    tensor(name + ".bias", {width}, op);
  }
}

void ModelBuilder::rows(RowUnit unit, std::int64_t each) {
  unit_ = unit;
  each_ = each;
}

Op& ModelBuilder::op(std::string_view name, OpClass op_class, std::int64_t n, std::int64_t k) {
  Op op;
  op.name = prefix_ + std::string(name);
  op.op_class = op_class;
  op.rows = unit_;
  op.each = each_;
  op.n = n;
  op.k = k;
  op.dtype = run_.dtype;
  op.varlen = run_.attention == AttentionKind::Varlen && unit_ == RowUnit::Tokens;
  model.forward.push_back(std::move(op));
  return model.forward.back();
}

void ModelBuilder::attention(const AttentionSizes& sizes, const std::string& name) {
  const auto one = [&](const std::string& part, OpClass op_class) {
    Op& added = op(part, op_class, 0);
    added.heads = sizes.heads;
    added.kv_heads = sizes.kv_heads;
    added.head_dim = sizes.head_dim;
    added.causal = sizes.causal;
    added.keys = sizes.keys;
    added.window = op_class == OpClass::Attention ? sizes.window : 0;
  };
  if (!dense()) {
    one(name, OpClass::Attention);
    return;
  }
  const std::string prefix = name == "attention" ? "" : name + "_";
  one(prefix + "scores", OpClass::AttentionScores);
  one(prefix + "softmax", OpClass::Softmax);
  one(prefix + "context", OpClass::AttentionContext);
}

}  // namespace stepsim

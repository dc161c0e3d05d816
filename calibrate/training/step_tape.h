#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/base/input_error.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// The property of a token that a lookup reads its row by.
enum class TokenIndex { Ids, Positions, Types };

/// Whether a linear layer has one row of features for each token or for each sample.
enum class RowsOf { Tokens, Samples };

/// The features of some heads: the columns of a value from `column` on.
template <typename Value>
struct HeadsOf {
  Value* value = nullptr;
  std::int64_t column = 0;
};

/// The recorded program of a step: one function for each op of step_ops(), in the same order. The
/// name of an op and the model's family say what it computes; `completes` names its parameters.
///
/// This class holds the structure of the models. Tape derives from it, makes the nodes on its own
/// values, and calls build() in its constructor.
template <typename Value>
class StepTape {
 public:
  StepTape(const StepTape&) = delete;
  StepTape& operator=(const StepTape&) = delete;
  virtual ~StepTape() = default;

  void forward(std::size_t op) const { forward_[op](); }
  void backward(std::size_t op) const { backward_[op](); }
  [[nodiscard]] std::size_t forward_size() const { return forward_.size(); }

 protected:
  using Run = std::function<void()>;
  using Part = HeadsOf<Value>;

  explicit StepTape(const TransformerConfig& config) : config_(config) {}

  /// Makes all nodes. Raises InputError: a family without kernels.
  void build(const StepOps& ops);

  // A node records itself with these: once forward, and once for each backward op.
  void on_forward(Run run) { forward_.push_back(std::move(run)); }
  void on_backward(const Op& op, Pass pass, Run run) {
    backward_of_[{op.name, pass}] = std::move(run);
  }
  /// The parameters whose gradients the op's backward completes, ascending.
  [[nodiscard]] const std::vector<int>& parameters_of(const Op& op) const;
  [[nodiscard]] const TransformerConfig& config() const { return config_; }
  /// The token table, which a tied head uses as its weight.
  [[nodiscard]] int embedding_table() const { return embedding_table_; }

  // The nodes. Each returns its output.
  virtual Value& lookup(const Op& op, TokenIndex index) = 0;
  virtual Value& sum(const Op& op, std::vector<Value*> terms) = 0;
  virtual Value& norm(const Op& op, Value& x) = 0;
  virtual Value& linear(const Op& op, Value& x, RowsOf rows) = 0;
  virtual Value& activation(const Op& op, Value& x) = 0;
  virtual Value& swiglu(const Op& op, Value& gate, Value& up) = 0;
  virtual void rotary(const Op& op, const Part& q, const Part& k) = 0;
  virtual Value& scores(const Op& op, const Part& q, const Part& k) = 0;
  virtual void softmax(const Op& op, Value& scores) = 0;
  virtual Value& context(const Op& op, Value& probabilities, const Part& v) = 0;
  virtual Value& attention(const Op& op, const Part& q, const Part& k, const Part& v) = 0;
  virtual Value& pool(const Op& op, Value& x) = 0;
  virtual void loss(const Op& op, Value& logits) = 0;

 private:
  void add(const Op& op);
  bool add_embedding_part(const Op& op, const std::string& part);
  bool add_projection_part(const Op& op, const std::string& part);
  bool add_attention_part(const Op& op, const std::string& part);
  bool add_mlp_part(const Op& op, const std::string& part);
  bool add_head_part(const Op& op, const std::string& part);

  const TransformerConfig& config_;
  std::map<std::string, std::vector<int>> completed_by_;  ///< [op name]
  std::map<std::pair<std::string, Pass>, Run> backward_of_;
  std::vector<Run> forward_;
  std::vector<Run> backward_;

  // State of build(): the residual stream, the branch under way, and the parts in between.
  bool pre_norm_ = false;
  Value* stream_ = nullptr;
  Value* branch_ = nullptr;
  std::vector<Value*> embedded_;
  Part q_;
  Part k_;
  Part v_;
  Value* scores_ = nullptr;
  Value* gate_ = nullptr;
  Value* up_ = nullptr;
  int embedding_table_ = -1;
};

template <typename Value>
void StepTape<Value>::build(const StepOps& ops) {
  const ModelFamily family = config_.family;
  if (family == ModelFamily::Blocks) {
    throw InputError("model kind blocks has no kernels; it is for simulation only");
  }
  pre_norm_ = family != ModelFamily::Bert && family != ModelFamily::DistilBert;
  for (const Op& op : ops.backward) {
    auto& list = completed_by_[op.name];
    list.insert(list.end(), op.completes.begin(), op.completes.end());
    std::ranges::sort(list);
  }
  for (const Op& op : ops.forward) {
    add(op);
  }
  for (const Op& op : ops.backward) {
    const auto found = backward_of_.find({op.name, op.pass});
    if (found == backward_of_.end()) {
      throw std::logic_error("the trainer has no backward for op " + op.name);
    }
    backward_.push_back(found->second);
  }
  if (forward_.size() != ops.forward.size() || backward_of_.size() != ops.backward.size()) {
    throw std::logic_error("the trainer's tape differs from the model's list of ops");
  }
}

template <typename Value>
const std::vector<int>& StepTape<Value>::parameters_of(const Op& op) const {
  static const std::vector<int> kNone;
  const auto found = completed_by_.find(op.name);
  return found == completed_by_.end() ? kNone : found->second;
}

template <typename Value>
void StepTape<Value>::add(const Op& op) {
  const auto dot = op.name.find('.');  // "layer3.qkv" -> "qkv"
  const std::string part = dot == std::string::npos ? op.name : op.name.substr(dot + 1);
  if (!add_embedding_part(op, part) && !add_projection_part(op, part) &&
      !add_attention_part(op, part) && !add_mlp_part(op, part) && !add_head_part(op, part)) {
    throw std::logic_error("the trainer does not know op " + op.name);
  }
}

template <typename Value>
bool StepTape<Value>::add_embedding_part(const Op& op, const std::string& part) {
  if (part == "embedding") {
    embedding_table_ = parameters_of(op).at(0);
    stream_ = &lookup(op, TokenIndex::Ids);
    embedded_.push_back(stream_);
  } else if (part == "position_embedding") {
    embedded_.push_back(&lookup(op, TokenIndex::Positions));
  } else if (part == "token_type_embedding") {
    embedded_.push_back(&lookup(op, TokenIndex::Types));
  } else if (part == "embedding_add") {
    stream_ = &sum(op, embedded_);
  } else if (part == "embedding_norm") {
    stream_ = &norm(op, *stream_);
  } else {
    return false;
  }
  branch_ = stream_;
  return true;
}

template <typename Value>
bool StepTape<Value>::add_projection_part(const Op& op, const std::string& part) {
  if (part == "qkv") {
    Value* all = &linear(op, *branch_, RowsOf::Tokens);
    q_ = {all, 0};
    k_ = {all, config_.heads * config_.head_dim()};
    v_ = {all, (config_.heads + config_.kv_heads) * config_.head_dim()};
  } else if (part == "q") {
    q_ = {&linear(op, *branch_, RowsOf::Tokens), 0};
  } else if (part == "k") {
    k_ = {&linear(op, *branch_, RowsOf::Tokens), 0};
  } else if (part == "v") {
    v_ = {&linear(op, *branch_, RowsOf::Tokens), 0};
  } else if (part == "rotary") {
    rotary(op, q_, k_);
  } else {
    return false;
  }
  return true;
}

template <typename Value>
bool StepTape<Value>::add_attention_part(const Op& op, const std::string& part) {
  if (part == "attention_norm" || part == "mlp_norm" || part == "final_norm") {
    branch_ = &norm(op, *stream_);
    stream_ = pre_norm_ && part != "final_norm" ? stream_ : branch_;
  } else if (part == "scores") {
    scores_ = &scores(op, q_, k_);
  } else if (part == "softmax") {
    softmax(op, *scores_);
  } else if (part == "context") {
    branch_ = &context(op, *scores_, v_);
  } else if (part == "attention") {
    branch_ = &attention(op, q_, k_, v_);
  } else if (part == "attention_output") {
    branch_ = &linear(op, *branch_, RowsOf::Tokens);
  } else if (part == "attention_residual" || part == "mlp_residual") {
    stream_ = &sum(op, {branch_, stream_});
    branch_ = stream_;
  } else {
    return false;
  }
  return true;
}

template <typename Value>
bool StepTape<Value>::add_mlp_part(const Op& op, const std::string& part) {
  if (part == "mlp_gate") {
    gate_ = &linear(op, *branch_, RowsOf::Tokens);
  } else if (part == "mlp_up") {
    up_ = &linear(op, *branch_, RowsOf::Tokens);
  } else if (part == "activation") {
    branch_ = gate_ != nullptr ? &swiglu(op, *gate_, *up_) : &activation(op, *up_);
    gate_ = nullptr;
  } else if (part == "mlp_down") {
    branch_ = &linear(op, *branch_, RowsOf::Tokens);
  } else {
    return false;
  }
  return true;
}

template <typename Value>
bool StepTape<Value>::add_head_part(const Op& op, const std::string& part) {
  if (part == "lm_head") {
    branch_ = &linear(op, *branch_, RowsOf::Tokens);
  } else if (part == "pooling") {
    branch_ = &pool(op, *branch_);
  } else if (part == "pooler" || part == "pre_classifier" || part == "classifier") {
    branch_ = &linear(op, *branch_, RowsOf::Samples);
  } else if (part == "head_activation") {
    branch_ = &activation(op, *branch_);
  } else if (part == "loss") {
    loss(op, *branch_);
  } else {
    return false;
  }
  return true;
}

}  // namespace stepsim

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/cpu/batch.h"
#include "calibrate/cpu/parameter_store.h"
#include "calibrate/cpu/workspace.h"
#include "costmodel/transformer.h"

namespace stepsim::cpu {

/// What every node of the tape works on. All references outlive the tape.
struct TapeContext {
  const TransformerConfig& config;
  const std::vector<Parameter>& parameters;
  ParameterStore& store;
  const Batch& batch;
  Workspace& workspace;
  std::uint64_t seed;  ///< Of the initial weights.
};

/// A part of a value: the features of some heads, from column `column` on.
struct HeadsOf {
  Value* value = nullptr;
  std::int64_t column = 0;
};

/// The recorded program of a step: one function for each op of step_ops(), in its order. What an
/// op computes follows from its name and the model's family, its parameters from `completes`.
class Tape {
 public:
  Tape(const TapeContext& context, const StepOps& ops);
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  void forward(std::size_t op) const { forward_[op](); }
  void backward(std::size_t op) const { backward_[op](); }
  [[nodiscard]] std::size_t forward_size() const { return forward_.size(); }
  /// Mean cross entropy of the last forward, without the loss scale.
  [[nodiscard]] double loss() const { return loss_; }

 private:
  using Run = std::function<void()>;

  // tape.cpp: bookkeeping and the structure of the model.
  void add(const Op& op);
  bool add_embedding_part(const Op& op, const std::string& part);
  bool add_attention_part(const Op& op, const std::string& part);
  bool add_mlp_part(const Op& op, const std::string& part);
  bool add_head_part(const Op& op, const std::string& part);
  void on_forward(Run run) { forward_.push_back(std::move(run)); }
  void on_backward(const Op& op, Pass pass, Run run);
  [[nodiscard]] const std::vector<int>& parameters_of(const Op& op) const;
  void initialise(std::size_t parameter, float bound, float center);

  // tape_rows.cpp: nodes that work on rows of features. Each returns its output.
  Value& lookup(const Op& op, const std::vector<std::int32_t> Batch::*index);
  Value& sum(const Op& op, std::vector<Value*> terms);
  Value& norm(const Op& op, Value& x);
  Value& activation(const Op& op, Value& x);
  Value& swiglu(const Op& op, Value& gate, Value& up);
  Value& pool(const Op& op, Value& x);
  void loss(const Op& op, Value& logits);

  // tape_linear.cpp
  Value& linear(const Op& op, Value& x, Extent extent);

  // tape_attention.cpp
  void rotary(const Op& op);
  void scores(const Op& op);
  void softmax(const Op& op);
  Value& context(const Op& op);

  TapeContext context_;
  std::map<std::string, std::vector<int>> completed_by_;  ///< [op name] parameters, ascending.
  std::map<std::pair<std::string, Pass>, Run> backward_of_;
  std::vector<Run> forward_;
  std::vector<Run> backward_;
  double loss_ = 0;

  // While building: the residual stream, the branch that is under way, and the parts in between.
  bool pre_norm_ = false;
  Value* stream_ = nullptr;
  Value* branch_ = nullptr;
  std::vector<Value*> embedded_;
  HeadsOf q_;
  HeadsOf k_;
  HeadsOf v_;
  Value* scores_ = nullptr;
  Value* gate_ = nullptr;
  Value* up_ = nullptr;
  int embedding_table_ = -1;
  std::vector<float> cosine_;  ///< [position][head_dim / 2]
  std::vector<float> sine_;
};

}  // namespace stepsim::cpu

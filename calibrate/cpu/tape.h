#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/cpu/batch.h"
#include "calibrate/cpu/parameter_store.h"
#include "calibrate/cpu/workspace.h"
#include "calibrate/training/step_tape.h"

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

/// The nodes of a step in fp32 with the kernels of this folder; dense attention.
class Tape : public StepTape<Value> {
 public:
  Tape(const TapeContext& context, const StepOps& ops);

  /// Mean cross entropy of the last forward, without the loss scale.
  [[nodiscard]] double loss() const { return loss_; }

 private:
  void initialise(std::size_t parameter, float bound, float center);

  // tape_rows.cpp: nodes that work on rows of features.
  Value& lookup(const Op& op, TokenIndex index) override;
  Value& sum(const Op& op, std::vector<Value*> terms) override;
  Value& norm(const Op& op, Value& x) override;
  Value& activation(const Op& op, Value& x) override;
  Value& swiglu(const Op& op, Value& gate, Value& up) override;
  Value& pool(const Op& op, Value& x) override;
  void loss(const Op& op, Value& logits) override;

  // tape_linear.cpp
  Value& linear(const Op& op, Value& x, RowsOf rows) override;

  // tape_attention.cpp
  void rotary(const Op& op, const Part& q, const Part& k) override;
  Value& scores(const Op& op, const Part& q, const Part& k) override;
  void softmax(const Op& op, Value& square) override;
  Value& context(const Op& op, Value& square, const Part& v) override;
  Value& attention(const Op& op, const Part& q, const Part& k, const Part& v) override;

  TapeContext context_;
  double loss_ = 0;
  std::vector<float> cosine_;  ///< [position][head_dim / 2]
  std::vector<float> sine_;
};

}  // namespace stepsim::cpu

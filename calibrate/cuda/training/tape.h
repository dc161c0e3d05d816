#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "calibrate/cuda/attention/dense_attention.h"
#include "calibrate/cuda/attention/sdpa.h"
#include "calibrate/cuda/kernels/gemm.h"
#include "calibrate/cuda/training/batch.h"
#include "calibrate/cuda/training/parameter_store.h"
#include "calibrate/cuda/training/workspace.h"
#include "calibrate/training/step_tape.h"

namespace stepsim::cuda {

/// What every node of the tape works on. All references outlive the tape.
struct TapeContext {
  const TransformerConfig& config;
  const std::vector<Parameter>& parameters;
  const Stream& stream;
  ParameterStore& store;
  const Batch& batch;
  Workspace& workspace;
  Gemm& gemm;
  Sdpa& sdpa;
  std::uint64_t seed;  ///< Of the initial weights.
};

/// The nodes of a step with cuBLASLt, cuDNN and the kernels of this folder, launched in stream
/// order. Activations have the model's dtype, parameters and their gradients parameter_dtype: where
/// both differ a layer casts its weights before it multiplies and its gradient after, as automatic
/// mixed precision does.
///
/// Fused attention over padded batches masks the keys of padding only where it is not causal:
/// behind the last useful token a causal query is padding itself.
class Tape : public StepTape<Value> {
 public:
  Tape(const TapeContext& context, const StepOps& ops);

  /// Copies the loss of the last forward to the host, in stream order.
  void fetch_loss();
  /// Mean cross entropy that was fetched, without the loss scale; the copy must be done.
  [[nodiscard]] double loss() const;

  /// The problem that fused attention solves for a batch of this size.
  [[nodiscard]] SdpaShape sdpa_shape(const BatchSize& size) const;

 private:
  [[nodiscard]] Dtype dtype() const { return stored_as(config().dtype); }
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

  /// Contiguous copies of the heads of one layer's dense attention.
  struct HeadCopies {
    Value* q = nullptr;
    Value* k = nullptr;
    Value* v = nullptr;
  };
  [[nodiscard]] DenseAttention dense_shape() const;
  [[nodiscard]] DenseCopies dense_copies(const HeadCopies& heads) const;

  TapeContext context_;
  std::map<const Value*, HeadCopies> copies_of_;  ///< By score matrix.
  SdpaShape sdpa_form_;                           ///< Without a batch's size.
  Extent loss_extent_ = Extent::Tokens;
  DeviceBuffer loss_sum_;
  HostBuffer fetched_loss_;
  DeviceBuffer rotary_table_;  ///< Cosines, then sines, [position][head_dim / 2].
};

}  // namespace stepsim::cuda

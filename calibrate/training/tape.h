#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "calibrate/training/batch.h"
#include "calibrate/training/parameter_store.h"
#include "calibrate/training/step_tape.h"
#include "calibrate/training/workspace.h"

namespace stepsim {

/// What every node of the tape works on. All references outlive the tape.
template <typename Device>
struct TapeContext {
  const TransformerConfig& config;
  const std::vector<Parameter>& parameters;
  Device& device;
  ParameterStore<Device>& store;
  const Batch<Device>& batch;
  Workspace<Device>& workspace;
  std::uint64_t seed;  ///< The seed of the initial weights.
};

/// The nodes of a step, made of the device's kernels and launched in stream order. Activations have
/// the model's dtype, parameters and their gradients parameter_dtype: where the two differ, a layer
/// casts its weights before it multiplies and its gradient after, as automatic mixed precision
/// does.
///
/// With KernelChoice::TorchEager the residual stream has the dtype of the embedding tables, as it
/// has in PyTorch: under autocast embeddings, norms and sums are then F32, and every linear layer
/// casts its input and the gradient of that. Source: the lists in PyTorch's
/// aten/src/ATen/autocast_mode.h, where linear and addmm compute in 16 bit, layer_norm in F32, and
/// what is on no list in the wider type of its inputs.
///
/// Kernels are found by the type of their first argument, the device's stream. A device that has
/// fused attention specialises attention(); the others refuse it.
template <typename Device>
class Tape : public StepTape<Tensor<Device>> {
 public:
  Tape(const TapeContext<Device>& context, const StepOps& ops)
      : Base(context.config),
        context_(context),
        loss_sum_(sizeof(float)),
        fetched_loss_(sizeof(float)) {
    this->build(ops);
  }

  /// Copies the loss of the last forward to the host, in stream order.
  void fetch_loss() {
    copy_to_host(stream(), fetched_loss_.template as<float>(), loss_sum_.data(), sizeof(float));
  }
  /// Gives back the memory that grows with the batch and is not the workspace's.
  void release() {
    for (auto& [scores, copies] : copies_of_) {
      context_.device.release(copies);
    }
  }
  /// The mean cross entropy that was fetched, without the loss scale. The copy must be done.
  [[nodiscard]] double loss() const {
    return static_cast<double>(*fetched_loss_.template as<float>()) /
           static_cast<double>(target_count());
  }

 private:
  using Base = StepTape<Tensor<Device>>;
  using Value = Tensor<Device>;
  using Part = HeadsOf<Value>;
  using Array = typename Device::Array;
  using Heads = typename Device::Heads;
  using ConstHeads = typename Device::ConstHeads;
  using HeadCopies = typename Device::HeadCopies;
  struct LinearLayer;

  using Base::config;
  using Base::on_backward;
  using Base::on_forward;
  using Base::parameters_of;

  [[nodiscard]] const typename Device::Stream& stream() const { return context_.device.stream; }
  [[nodiscard]] Dtype dtype() const { return stored_as(config().dtype); }
  [[nodiscard]] std::int64_t rows(const Value& value) const {
    return context_.workspace.rows(value);
  }
  [[nodiscard]] std::int64_t elements(const Value& value) const {
    return context_.workspace.elements(value);
  }
  Value& make(Extent extent, std::int64_t width) { return make(extent, width, dtype()); }
  Value& make(Extent extent, std::int64_t width, Dtype of) {
    return context_.workspace.make(extent, width, of);
  }
  [[nodiscard]] Dtype embedding_dtype() const {
    return config().kernels == KernelChoice::TorchEager ? stored_as(config().parameter_dtype)
                                                        : dtype();
  }
  /// For what a node keeps for its backward, in floats a row, whatever the model's dtype.
  Value& make_floats(Extent extent, std::int64_t width) { return make(extent, width, Dtype::F32); }
  Array write(Value& value) const { return context_.workspace.write(value); }
  float* write_floats(Value& value) const {
    write(value);
    return value.floats();
  }
  GradientSlot<Device> write_gradient(Value& value) const {
    return context_.workspace.write_gradient(value);
  }
  void release_gradient(Value& value) const { context_.workspace.release_gradient(value); }
  void initialise(std::size_t parameter, float bound, float center) const {
    fill_uniform(stream(),
                 context_.store.weights(parameter),
                 context_.store.elements(parameter),
                 bound,
                 center,
                 context_.seed + 0x51ED2701ULL * (parameter + 1));
  }

  // tape_rows.h: nodes that work on rows of features.
  Value& lookup(const Op& op, TokenIndex index) override;
  Value& sum(const Op& op, std::vector<Value*> terms) override;
  Value& norm(const Op& op, Value& x) override;
  Value& activation(const Op& op, Value& x) override;
  Value& swiglu(const Op& op, Value& gate, Value& up) override;
  Value& pool(const Op& op, Value& x) override;
  void loss(const Op& op, Value& logits) override;
  [[nodiscard]] const std::int32_t* index_of(TokenIndex index) const;
  [[nodiscard]] const std::int32_t* targets() const {
    const BatchArrays& arrays = context_.batch.arrays();
    return loss_extent_ == Extent::Samples ? arrays.labels : arrays.targets;
  }
  [[nodiscard]] std::int64_t target_count() const {
    const BatchSize& size = context_.batch.size();
    return loss_extent_ == Extent::Samples ? size.samples : size.useful_tokens;
  }

  // tape_linear.h
  Value& linear(const Op& op, Value& x, RowsOf rows) override;
  Value& cast_input(const LinearLayer& layer, Value& x);
  void multiply_forward(const LinearLayer& layer, const Value& x, Value& y);
  void multiply_input_gradient(const LinearLayer& layer, Value& x, const Value& y);
  [[nodiscard]] Array product_for(const GradientSlot<Device>& slot, const Value& x) const;
  void multiply_weight_gradient(const LinearLayer& layer, const Value& x, const Value& y);
  void sum_bias_gradient(const LinearLayer& layer, const Value& y);

  // tape_attention.h
  void rotary(const Op& op, const Part& q, const Part& k) override;
  Value& scores(const Op& op, const Part& q, const Part& k) override;
  void softmax(const Op& op, Value& square) override;
  Value& context(const Op& op, Value& square, const Part& v) override;
  Value& attention(const Op& op, const Part& q, const Part& k, const Part& v) override;
  void load_rotary_table();
  void rotate_heads(const Heads& x, std::int64_t heads, bool inverse) const;
  [[nodiscard]] DenseAttention dense_shape() const;
  [[nodiscard]] static ConstHeads read(const Part& part) {
    return {part.value->array().at(part.column), part.value->width};
  }
  /// q, k and v may be columns of one value: each writes its own part of the gradient.
  [[nodiscard]] Heads write_part(const Part& part) const {
    return {write_gradient(*part.value).array.at(part.column), part.value->width};
  }

  TapeContext<Device> context_;
  std::map<const Value*, HeadCopies> copies_of_;  ///< By score matrix.
  Extent loss_extent_ = Extent::Tokens;
  typename Device::Buffer loss_sum_;
  typename Device::HostBuffer fetched_loss_;
  typename Device::Buffer rotary_table_;  ///< Cosines, then sines, [position][head_dim / 2].
};

}  // namespace stepsim

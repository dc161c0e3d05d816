#include <cmath>
#include <stdexcept>

#include "calibrate/cuda/training/tape.h"

namespace stepsim::cuda {
namespace {

/// A linear layer's tensors. GPT-2 stores weights as [in, out], the others as [out, in].
struct LinearLayer {
  std::size_t weight = 0;
  std::size_t bias = 0;
  bool has_bias = false;
  bool in_out = false;
  bool tf32 = false;
  std::int64_t n = 0;
  std::int64_t k = 0;

  /// Elements from a row of the weight in memory to the next.
  [[nodiscard]] std::int64_t row() const { return in_out ? n : k; }
};

/// y = x W^T + bias.
void forward_product(const TapeContext& c, const LinearLayer& layer, const Value& x, Value& y) {
  c.store.cast(c.stream, layer.weight, layer.has_bias ? layer.bias : layer.weight);
  GemmCall call;
  call.m = c.workspace.rows(y);
  call.n = layer.n;
  call.k = layer.k;
  call.a = x.array();
  call.lda = layer.k;
  call.b = c.store.compute_weights(layer.weight);
  call.ldb = layer.row();
  call.transpose_b = !layer.in_out;
  call.c = c.workspace.write(y);
  call.ldc = layer.n;
  call.tf32 = layer.tf32;
  if (layer.has_bias) {
    call.bias = c.store.compute_weights(layer.bias);
  }
  c.gemm.run(c.stream, call);
}

/// dx = dy W.
void input_gradient(const TapeContext& c, const LinearLayer& layer, Value& x, const Value& y) {
  const GradientSlot dx = c.workspace.write_gradient(x);
  GemmCall call;
  call.m = c.workspace.rows(y);
  call.n = layer.k;
  call.k = layer.n;
  call.a = y.gradient_array();
  call.lda = layer.n;
  call.b = c.store.compute_weights(layer.weight);
  call.ldb = layer.row();
  call.transpose_b = layer.in_out;
  call.c = dx.array;
  call.ldc = layer.k;
  call.beta = dx.store == Store::Add ? 1.0F : 0.0F;
  call.tf32 = layer.tf32;
  c.gemm.run(c.stream, call);
}

/// dW += dy^T x, or x^T dy for a weight that lies as [in, out].
void weight_product(const TapeContext& c,
                    const LinearLayer& layer,
                    const Value& x,
                    const Value& y) {
  GemmCall call;
  call.m = layer.in_out ? layer.k : layer.n;
  call.n = layer.row();
  call.k = c.workspace.rows(y);
  call.a = layer.in_out ? x.array() : y.gradient_array();
  call.lda = layer.in_out ? layer.k : layer.n;
  call.b = layer.in_out ? y.gradient_array() : x.array();
  call.ldb = layer.row();
  call.transpose_a = true;
  call.ldc = layer.row();
  call.tf32 = layer.tf32;
  const Array gradient = c.store.gradient(layer.weight);
  if (!c.store.has_copies()) {
    call.c = gradient;
    call.beta = 1;
    c.gemm.run(c.stream, call);
    return;
  }
  call.c = c.workspace.scratch(layer.n * layer.k, y.dtype);
  c.gemm.run(c.stream, call);
  scaled_copy(c.stream, gradient, call.c, 1.0F, layer.n * layer.k, Store::Add);
}

void weight_gradient(const TapeContext& c, const LinearLayer& layer, const Value& x, Value& y) {
  weight_product(c, layer, x, y);
  if (layer.has_bias) {
    const std::int64_t rows = c.workspace.rows(y);
    const Array sums = c.workspace.scratch(column_sums_scratch(rows, layer.n), Dtype::F32);
    add_column_sums(c.stream,
                    c.store.gradient(layer.bias),
                    y.gradient_array(),
                    rows,
                    layer.n,
                    static_cast<float*>(sums.data));
  }
  c.workspace.release_gradient(y);
}

}  // namespace

Value& Tape::linear(const Op& op, Value& x, RowsOf rows) {
  const auto& list = parameters_of(op);
  const bool tied = list.empty();  // A tied head completes at the embedding.
  LinearLayer layer;
  layer.weight = static_cast<std::size_t>(tied ? embedding_table() : list[0]);
  layer.n = op.n;
  layer.k = op.k;
  layer.tf32 = config().dtype == Dtype::Tf32;
  const auto& shape = context_.parameters[layer.weight].shape;
  layer.in_out = !tied && config().family == ModelFamily::Gpt2 &&
                 shape == std::vector<std::int64_t>{op.k, op.n};
  if (!layer.in_out && shape != std::vector<std::int64_t>{op.n, op.k}) {
    throw std::logic_error("the weight of " + op.name + " has another shape than its op");
  }
  const float bound = 1.0F / std::sqrt(static_cast<float>(op.k));
  if (!tied) {
    initialise(layer.weight, bound, 0);
  }
  if (list.size() > 1) {
    layer.has_bias = true;
    layer.bias = static_cast<std::size_t>(list[1]);
    initialise(layer.bias, bound, 0);
  }
  Value& out = context_.workspace.make(
      rows == RowsOf::Tokens ? Extent::Tokens : Extent::Samples, op.n, dtype());
  const TapeContext& c = context_;
  on_forward([&c, layer, &x, &out] { forward_product(c, layer, x, out); });
  on_backward(op, Pass::InputGradient, [&c, layer, &x, &out] { input_gradient(c, layer, x, out); });
  on_backward(
      op, Pass::WeightGradient, [&c, layer, &x, &out] { weight_gradient(c, layer, x, out); });
  return out;
}

}  // namespace stepsim::cuda

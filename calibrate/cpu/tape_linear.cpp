#include <cmath>
#include <stdexcept>

#include "calibrate/cpu/rows.h"
#include "calibrate/cpu/tape.h"

namespace stepsim::cpu {
namespace {

/// A linear layer's tensors. GPT-2 stores weights as [in, out], the others as [out, in].
struct LinearWeights {
  float* weight;
  float* weight_gradient;
  float* bias;  ///< Null without one.
  float* bias_gradient;
  bool in_out;
  std::int64_t n;
  std::int64_t k;

  [[nodiscard]] ConstMatrix matrix() const {
    return in_out ? ConstMatrix{weight, k, n, n} : ConstMatrix{weight, n, k, k};
  }
};

void linear_forward(const LinearWeights& w, float* y, const float* x, std::int64_t rows) {
  const Matrix out{y, rows, w.n, w.n};
  const ConstMatrix in{x, rows, w.k, w.k};
  const Store store = w.bias != nullptr ? Store::Add : Store::Assign;
  if (w.bias != nullptr) {
    fill_rows(y, w.bias, rows, w.n);
  }
  if (w.in_out) {
    gemm_nn(out, in, w.matrix(), 1.0F, store);
  } else {
    gemm_nt(out, in, w.matrix(), 1.0F, store);
  }
}

void linear_input_gradient(const LinearWeights& w,
                           GradientSlot dx,
                           const float* dy,
                           std::int64_t rows) {
  const Matrix in{dx.data, rows, w.k, w.k};
  const ConstMatrix out{dy, rows, w.n, w.n};
  if (w.in_out) {
    gemm_nt(in, out, w.matrix(), 1.0F, dx.store);
  } else {
    gemm_nn(in, out, w.matrix(), 1.0F, dx.store);
  }
}

void linear_weight_gradient(const LinearWeights& w,
                            const float* dy,
                            const float* x,
                            std::int64_t rows) {
  const ConstMatrix out{dy, rows, w.n, w.n};
  const ConstMatrix in{x, rows, w.k, w.k};
  if (w.in_out) {
    gemm_tn({w.weight_gradient, w.k, w.n, w.n}, in, out, 1.0F, Store::Add);
  } else {
    gemm_tn({w.weight_gradient, w.n, w.k, w.k}, out, in, 1.0F, Store::Add);
  }
  if (w.bias != nullptr) {
    add_column_sums(w.bias_gradient, dy, rows, w.n);
  }
}

}  // namespace

Value& Tape::linear(const Op& op, Value& x, RowsOf rows) {
  const auto& list = parameters_of(op);
  const bool tied = list.empty();  // A tied head completes at the embedding.
  const auto weight = static_cast<std::size_t>(tied ? embedding_table() : list[0]);
  const auto& shape = context_.parameters[weight].shape;
  const bool in_out = !tied && context_.config.family == ModelFamily::Gpt2 &&
                      shape == std::vector<std::int64_t>{op.k, op.n};
  if (!in_out && shape != std::vector<std::int64_t>{op.n, op.k}) {
    throw std::logic_error("the weight of " + op.name + " has another shape than its op");
  }
  LinearWeights w{context_.store.weights(weight),
                  context_.store.gradient(weight),
                  nullptr,
                  nullptr,
                  in_out,
                  op.n,
                  op.k};
  const float bound = 1.0F / std::sqrt(static_cast<float>(op.k));
  if (!tied) {
    initialise(weight, bound, 0);
  }
  if (list.size() > 1) {
    const auto bias = static_cast<std::size_t>(list[1]);
    initialise(bias, bound, 0);
    w.bias = context_.store.weights(bias);
    w.bias_gradient = context_.store.gradient(bias);
  }
  Value& out =
      context_.workspace.make(rows == RowsOf::Tokens ? Extent::Tokens : Extent::Samples, op.n);
  const TapeContext c = context_;
  on_forward([c, w, &x, &out] {
    linear_forward(w, c.workspace.write(out), x.data.data(), c.workspace.rows(out));
  });
  on_backward(op, Pass::InputGradient, [c, w, &x, &out] {
    linear_input_gradient(
        w, c.workspace.write_gradient(x), out.gradient->data(), c.workspace.rows(out));
  });
  on_backward(op, Pass::WeightGradient, [c, w, &x, &out] {
    linear_weight_gradient(w, out.gradient->data(), x.data.data(), c.workspace.rows(out));
    c.workspace.release_gradient(out);
  });
  return out;
}

}  // namespace stepsim::cpu

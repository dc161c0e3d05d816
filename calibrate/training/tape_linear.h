#pragma once

// The definitions of Tape's linear layers.

#include <cmath>
#include <stdexcept>

#include "calibrate/training/tape.h"

namespace stepsim {

/// A linear layer's tensors. GPT-2 stores weights as [in, out], the others as [out, in].
template <typename Device>
struct Tape<Device>::LinearLayer {
  std::size_t weight = 0;
  std::size_t bias = 0;
  bool has_bias = false;
  bool in_out = false;
  std::int64_t n = 0;
  std::int64_t k = 0;

  /// Elements from a row of the weight in memory to the next.
  [[nodiscard]] std::int64_t row() const { return in_out ? n : k; }
};

/// x in the dtype that the layer multiplies in.
template <typename Device>
Tensor<Device>& Tape<Device>::cast_input(const LinearLayer& layer, Value& x) {
  return x.dtype == dtype() ? x : make(x.extent, layer.k);
}

/// Where a product goes that becomes the gradient of x: to its slot, or to scratch memory from
/// which it is cast.
template <typename Device>
typename Device::Array Tape<Device>::product_for(const GradientSlot<Device>& slot,
                                                 const Value& x) const {
  return x.dtype == dtype() ? slot.array : context_.device.scratch(elements(x), dtype());
}

/// y = x W^T + bias.
template <typename Device>
void Tape<Device>::multiply_forward(const LinearLayer& layer, const Value& x, Value& y) {
  const ParameterStore<Device>& store = context_.store;
  store.cast(stream(), layer.weight, layer.has_bias ? layer.bias : layer.weight);
  typename Device::GemmCall call;
  call.m = rows(y);
  call.n = layer.n;
  call.k = layer.k;
  call.a = x.array();
  call.lda = layer.k;
  call.b = store.compute_weights(layer.weight);
  call.ldb = layer.row();
  call.transpose_b = !layer.in_out;
  call.c = write(y);
  call.ldc = layer.n;
  if (layer.has_bias) {
    call.bias = store.compute_weights(layer.bias);
  }
  context_.device.multiply(call, config().dtype);
}

/// dx = dy W.
template <typename Device>
void Tape<Device>::multiply_input_gradient(const LinearLayer& layer, Value& x, const Value& y) {
  const GradientSlot<Device> dx = write_gradient(x);
  typename Device::GemmCall call;
  call.m = rows(y);
  call.n = layer.k;
  call.k = layer.n;
  call.a = y.gradient_array();
  call.lda = layer.n;
  call.b = context_.store.compute_weights(layer.weight);
  call.ldb = layer.row();
  call.transpose_b = layer.in_out;
  call.c = product_for(dx, x);
  call.ldc = layer.k;
  const bool cast = x.dtype != dtype();
  call.beta = dx.store == Store::Add && !cast ? 1.0F : 0.0F;
  context_.device.multiply(call, config().dtype);
  if (cast) {
    scaled_copy(stream(), dx.array, call.c, 1.0F, elements(x), dx.store);
  }
}

/// dW += dy^T x, or x^T dy for a weight that is stored as [in, out].
template <typename Device>
void Tape<Device>::multiply_weight_gradient(const LinearLayer& layer,
                                            const Value& x,
                                            const Value& y) {
  typename Device::GemmCall call;
  call.m = layer.in_out ? layer.k : layer.n;
  call.n = layer.row();
  call.k = rows(y);
  call.a = layer.in_out ? x.array() : y.gradient_array();
  call.lda = layer.in_out ? layer.k : layer.n;
  call.b = layer.in_out ? y.gradient_array() : x.array();
  call.ldb = layer.row();
  call.transpose_a = true;
  call.ldc = layer.row();
  const Array gradient = context_.store.gradient(layer.weight);
  if (!context_.store.has_copies()) {
    call.c = gradient;
    call.beta = 1;
    context_.device.multiply(call, config().dtype);
    return;
  }
  const Array product = context_.device.scratch(layer.n * layer.k, y.dtype);
  call.c = product;
  context_.device.multiply(call, config().dtype);
  scaled_copy(stream(), gradient, product, 1.0F, layer.n * layer.k, Store::Add);
}

template <typename Device>
void Tape<Device>::sum_bias_gradient(const LinearLayer& layer, const Value& y) {
  add_column_sums(stream(),
                  context_.store.gradient(layer.bias),
                  y.gradient_array(),
                  rows(y),
                  layer.n,
                  context_.device.column_sums_scratch(rows(y), layer.n));
}

template <typename Device>
Tensor<Device>& Tape<Device>::linear(const Op& op, Value& x, RowsOf rows_of) {
  const auto& list = parameters_of(op);
  const bool tied = list.empty();  // A tied head completes at the embedding.
  LinearLayer layer;
  layer.weight = static_cast<std::size_t>(tied ? this->embedding_table() : list[0]);
  layer.n = op.n;
  layer.k = op.k;
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
  Value& out = make(rows_of == RowsOf::Tokens ? Extent::Tokens : Extent::Samples, op.n);
  Value& input = cast_input(layer, x);
  on_forward([this, layer, &x, &input, &out] {
    if (&input != &x) {
      scaled_copy(stream(), write(input), x.array(), 1.0F, elements(x), Store::Assign);
    }
    multiply_forward(layer, input, out);
  });
  on_backward(
      op, Pass::InputGradient, [this, layer, &x, &out] { multiply_input_gradient(layer, x, out); });
  on_backward(op, Pass::WeightGradient, [this, layer, &input, &out] {
    multiply_weight_gradient(layer, input, out);
    if (layer.has_bias) {
      sum_bias_gradient(layer, out);
    }
    release_gradient(out);
  });
  return out;
}

}  // namespace stepsim

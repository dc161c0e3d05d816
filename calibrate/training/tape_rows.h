#pragma once

// The definitions of Tape's nodes that work on rows of features.

#include <algorithm>

#include "calibrate/training/activation_kind.h"
#include "calibrate/training/tape.h"

namespace stepsim {

template <typename Device>
const std::int32_t* Tape<Device>::index_of(TokenIndex index) const {
  const BatchArrays& arrays = context_.batch.arrays();
  switch (index) {
    case TokenIndex::Ids:
      return arrays.ids;
    case TokenIndex::Positions:
      return arrays.positions;
    case TokenIndex::Types:
      return arrays.types;
  }
  return arrays.ids;
}

template <typename Device>
Tensor<Device>& Tape<Device>::lookup(const Op& op, TokenIndex index) {
  const auto table = static_cast<std::size_t>(parameters_of(op).at(0));
  constexpr float kEmbeddingBound = 0.05F;
  initialise(table, kEmbeddingBound, 0);
  Value& out = make(Extent::Tokens, op.n, embedding_dtype());
  on_forward([this, index, table, &out] {
    gather_rows(
        stream(), write(out), context_.store.weights(table), index_of(index), rows(out), out.width);
  });
  on_backward(op, Pass::Backward, [this, index, table, &out] {
    scatter_add_rows(stream(),
                     context_.store.gradient(table),
                     out.gradient_array(),
                     index_of(index),
                     rows(out),
                     out.width);
    release_gradient(out);
  });
  return out;
}

template <typename Device>
Tensor<Device>& Tape<Device>::sum(const Op& op, std::vector<Value*> terms) {
  // The wider dtype of the terms. The gradient changes hands to the first term of that dtype.
  const auto wider = [](const Value* a, const Value* b) {
    return element_size(a->dtype) < element_size(b->dtype);
  };
  Value& heir = **std::ranges::max_element(terms, wider);
  Value& out = make(Extent::Tokens, op.n, heir.dtype);
  on_forward([this, terms, &out] {
    add_elements(stream(),
                 write(out),
                 terms[0]->array(),
                 terms[1]->array(),
                 terms.size() > 2 ? terms[2]->array() : Array(),
                 elements(out));
  });
  on_backward(op, Pass::Backward, [this, terms, &heir, &out] {
    for (Value* term : terms) {
      if (term != &heir) {
        const GradientSlot<Device> slot = write_gradient(*term);
        scaled_copy(stream(), slot.array, out.gradient_array(), 1.0F, elements(out), slot.store);
      }
    }
    Workspace<Device>::move_gradient(out, heir);
  });
  return out;
}

template <typename Device>
Tensor<Device>& Tape<Device>::norm(const Op& op, Value& x) {
  const auto& list = parameters_of(op);
  const ModelFamily family = config().family;
  const bool rms = family == ModelFamily::Llama || family == ModelFamily::Nanochat;
  typename Device::NormWeights weights;
  typename Device::NormGradients gradients;
  if (!list.empty()) {
    const auto gain = static_cast<std::size_t>(list[0]);
    initialise(gain, 0, 1);
    weights.gain = context_.store.weights(gain);
    gradients.gain = context_.store.gradient(gain);
  }
  if (list.size() > 1) {
    const auto bias = static_cast<std::size_t>(list[1]);  // Starts at zero.
    weights.bias = context_.store.weights(bias);
    gradients.bias = context_.store.gradient(bias);
  }
  Value& out = make(x.extent, op.n, x.dtype);
  Value& saved = make_floats(x.extent, context_.device.saved_of_norm(rms, x.width, x.dtype));
  on_forward([this, rms, weights, &x, &out, &saved] {
    context_.device.norm_forward(
        rms, write(out), write_floats(saved), x.array(), weights, rows(x), x.width);
  });
  on_backward(op, Pass::Backward, [this, rms, weights, gradients, &x, &out, &saved] {
    const GradientSlot<Device> dx = write_gradient(x);
    context_.device.norm_backward(rms,
                                  dx.array,
                                  dx.store,
                                  gradients,
                                  out.gradient_array(),
                                  x.array(),
                                  saved.floats(),
                                  weights,
                                  rows(x),
                                  x.width);
    release_gradient(out);
  });
  return out;
}

template <typename Device>
Tensor<Device>& Tape<Device>::activation(const Op& op, Value& x) {
  const ActivationKind kind = activation_of(config().family, x.extent == Extent::Samples);
  Value& out = make(x.extent, op.n, context_.device.activation_dtype(kind, x.dtype));
  Value& saved = make_floats(x.extent, context_.device.saved_of_activation(kind, op.n, x.dtype));
  on_forward([this, kind, &x, &out, &saved] {
    context_.device.activation_forward(
        kind, write(out), write_floats(saved), x.array(), elements(out));
  });
  on_backward(op, Pass::Backward, [this, kind, &x, &out, &saved] {
    context_.device.activation_backward(kind,
                                        write_gradient(x).array,
                                        out.gradient_array(),
                                        saved.floats(),
                                        x.array(),
                                        elements(out));
    release_gradient(out);
  });
  return out;
}

template <typename Device>
Tensor<Device>& Tape<Device>::swiglu(const Op& op, Value& gate, Value& up) {
  Value& out = make(Extent::Tokens, op.n);
  on_forward([this, &gate, &up, &out] {
    swiglu_forward(stream(), write(out), gate.array(), up.array(), elements(out));
  });
  on_backward(op, Pass::Backward, [this, &gate, &up, &out] {
    swiglu_backward(stream(),
                    write_gradient(gate).array,
                    write_gradient(up).array,
                    out.gradient_array(),
                    gate.array(),
                    up.array(),
                    elements(out));
    release_gradient(out);
  });
  return out;
}

template <typename Device>
Tensor<Device>& Tape<Device>::pool(const Op& op, Value& x) {
  Value& out = make(Extent::Samples, op.n, x.dtype);
  const bool mean = config().family == ModelFamily::TokenClassifier;
  on_forward([this, mean, &x, &out] {
    pool_forward(stream(), write(out), x.array(), context_.batch.sequences(), x.width, mean);
  });
  on_backward(op, Pass::Backward, [this, mean, &x, &out] {
    pool_backward(stream(),
                  write_gradient(x).array,
                  out.gradient_array(),
                  context_.batch.sequences(),
                  x.width,
                  mean);
    release_gradient(out);
  });
  return out;
}

template <typename Device>
void Tape<Device>::loss(const Op& op, Value& logits) {
  loss_extent_ = logits.extent;
  Value& losses = make_floats(logits.extent, 1);
  Value& saved = make_floats(logits.extent, context_.device.saved_of_loss(logits.width));
  on_forward([this, &logits, &losses, &saved] {
    context_.device.loss_forward(loss_sum_.template as<float>(),
                                 write_floats(losses),
                                 write_floats(saved),
                                 logits.array(),
                                 targets(),
                                 rows(logits),
                                 logits.width);
  });
  on_backward(op, Pass::Backward, [this, &logits, &saved] {
    context_.device.loss_backward(
        write_gradient(logits).array,
        logits.array(),
        saved.floats(),
        targets(),
        static_cast<float>(context_.batch.loss_scale() / static_cast<double>(target_count())),
        rows(logits),
        logits.width);
  });
}

}  // namespace stepsim

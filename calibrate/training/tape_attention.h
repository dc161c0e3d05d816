#pragma once

// The definitions of Tape's rotary embedding and dense attention.

#include "calibrate/training/rotary_angles.h"
#include "calibrate/training/tape.h"

namespace stepsim {

template <typename Device>
void Tape<Device>::load_rotary_table() {
  if (rotary_table_.data() == nullptr) {
    const std::vector<float> table = rotary_angles(config().max_length, config().head_dim());
    rotary_table_.reserve(table.size() * sizeof(float));
    copy_to_device(stream(), rotary_table_.data(), table.data(), table.size() * sizeof(float));
    stream().synchronize();
  }
}

template <typename Device>
void Tape<Device>::rotate_heads(const Heads& x, std::int64_t heads, bool inverse) const {
  const float* cosine = rotary_table_.template as<float>();
  rotate(stream(),
         x,
         heads,
         config().head_dim(),
         context_.batch.arrays().positions,
         context_.batch.size().rows,
         cosine,
         cosine + config().max_length * (config().head_dim() / 2),
         inverse);
}

template <typename Device>
void Tape<Device>::rotary(const Op& op, const Part& q, const Part& k) {
  load_rotary_table();
  on_forward([this, q, k] {
    rotate_heads({q.value->array().at(q.column), q.value->width}, config().heads, false);
    rotate_heads({k.value->array().at(k.column), k.value->width}, config().kv_heads, false);
  });
  on_backward(op, Pass::Backward, [this, q, k] {
    rotate_heads(write_part(q), config().heads, true);
    rotate_heads(write_part(k), config().kv_heads, true);
  });
}

template <typename Device>
DenseAttention Tape<Device>::dense_shape() const {
  const BatchSize& size = context_.batch.size();
  DenseAttention shape;
  shape.samples = size.samples;
  shape.length = size.length;
  shape.heads = config().heads;
  shape.kv_heads = config().kv_heads;
  shape.head_dim = config().head_dim();
  shape.mask.lengths = size.has_padding() ? context_.batch.arrays().lengths : nullptr;
  shape.mask.causal = config().causal;
  shape.mask.window = config().window;
  shape.tf32 = config().dtype == Dtype::Tf32;
  return shape;
}

template <typename Device>
Tensor<Device>& Tape<Device>::scores(const Op& op, const Part& q, const Part& k) {
  Value& out = make(Extent::Scores, config().heads);
  HeadCopies& copies = copies_of_[&out];
  on_forward([this, &copies, q, k, &out] {
    dense_scores_forward(stream(),
                         context_.device.gemm,
                         dense_shape(),
                         write(out),
                         context_.device.dense_copies(copies, dense_shape(), dtype()),
                         read(q),
                         read(k));
  });
  on_backward(op, Pass::Backward, [this, &copies, q, k, &out] {
    dense_scores_backward(stream(),
                          context_.device.gemm,
                          dense_shape(),
                          out.gradient_array(),
                          context_.device.dense_copies(copies, dense_shape(), dtype()),
                          write_part(q),
                          write_part(k));
    release_gradient(out);
  });
  return out;
}

/// Works in place: the backward needs the probabilities only.
template <typename Device>
void Tape<Device>::softmax(const Op& op, Value& square) {
  on_forward([this, &square] { dense_softmax_forward(stream(), dense_shape(), square.array()); });
  on_backward(op, Pass::Backward, [this, &square] {
    dense_softmax_backward(stream(), dense_shape(), square.gradient_array(), square.array());
  });
}

template <typename Device>
Tensor<Device>& Tape<Device>::context(const Op& op, Value& square, const Part& v) {
  Value& out = make(Extent::Tokens, config().heads * config().head_dim());
  HeadCopies& copies = copies_of_.at(&square);
  on_forward([this, &copies, v, &square, &out] {
    dense_context_forward(stream(),
                          context_.device.gemm,
                          dense_shape(),
                          {write(out), out.width},
                          context_.device.dense_copies(copies, dense_shape(), dtype()),
                          square.array(),
                          read(v));
  });
  on_backward(op, Pass::Backward, [this, &copies, v, &square, &out] {
    dense_context_backward(stream(),
                           context_.device.gemm,
                           dense_shape(),
                           write_gradient(square).array,
                           context_.device.dense_copies(copies, dense_shape(), dtype()),
                           write_part(v),
                           {out.gradient_array(), out.width},
                           square.array());
    release_gradient(out);
  });
  return out;
}

}  // namespace stepsim

#include <cmath>
#include <stdexcept>

#include "calibrate/cpu/attention.h"
#include "calibrate/cpu/tape.h"

namespace stepsim::cpu {
namespace {

AttentionShape shape_of(const TransformerConfig& config, const Batch& batch) {
  AttentionShape shape;
  shape.samples = batch.samples;
  shape.length = batch.length;
  shape.heads = config.heads;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim();
  shape.causal = config.causal;
  shape.window = config.window;
  shape.padding_bias = batch.padding_bias.data();
  return shape;
}

ConstHeads read(const HeadsOf<Value>& heads) {
  return {heads.value->data.data() + heads.column, heads.value->width};
}

ConstHeads read_gradient(const HeadsOf<Value>& heads) {
  return {heads.value->gradient->data() + heads.column, heads.value->width};
}

/// q, k and v may be columns of one value: each writes its own part of the gradient.
Heads write_gradient(const TapeContext& c, const HeadsOf<Value>& heads) {
  return {c.workspace.write_gradient(*heads.value).data + heads.column, heads.value->width};
}

void rotate_both(
    const TapeContext& c, Heads q, Heads k, const float* cosine, const float* sine, bool inverse) {
  const TransformerConfig& config = c.config;
  const Batch& batch = c.batch;
  rotate(q, config.heads, config.head_dim(), batch.samples, batch.length, cosine, sine, inverse);
  rotate(k, config.kv_heads, config.head_dim(), batch.samples, batch.length, cosine, sine, inverse);
}

/// Angles position * theta^(-2 i / head_dim), theta = 10000.
/// Source: Su et al. 2104.09864.
void fill_rotary_table(std::vector<float>& cosine,
                       std::vector<float>& sine,
                       std::int64_t positions,
                       std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t position = 0; position < positions; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
      const double angle = static_cast<double>(position) * std::pow(10000.0, exponent);
      cosine.push_back(static_cast<float>(std::cos(angle)));
      sine.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

}  // namespace

void Tape::rotary(const Op& op, const Part& q, const Part& k) {
  if (cosine_.empty()) {
    fill_rotary_table(cosine_, sine_, context_.config.max_length, context_.config.head_dim());
  }
  const TapeContext c = context_;
  on_forward([this, c, q, k] {
    rotate_both(c,
                {q.value->data.data() + q.column, q.value->width},
                {k.value->data.data() + k.column, k.value->width},
                cosine_.data(),
                sine_.data(),
                false);
  });
  on_backward(op, Pass::Backward, [this, c, q, k] {
    rotate_both(c, write_gradient(c, q), write_gradient(c, k), cosine_.data(), sine_.data(), true);
  });
}

Value& Tape::scores(const Op& op, const Part& q, const Part& k) {
  Value& out = context_.workspace.make(Extent::Scores, context_.config.heads);
  const TapeContext c = context_;
  on_forward([c, q, k, &out] {
    scores_forward(shape_of(c.config, c.batch), c.workspace.write(out), read(q), read(k));
  });
  on_backward(op, Pass::Backward, [c, q, k, &out] {
    scores_backward(shape_of(c.config, c.batch),
                    write_gradient(c, q),
                    write_gradient(c, k),
                    out.gradient->data(),
                    read(q),
                    read(k));
    c.workspace.release_gradient(out);
  });
  return out;
}

/// In place: the backward needs the probabilities only.
void Tape::softmax(const Op& op, Value& square) {
  const TapeContext c = context_;
  on_forward([c, &square] {
    softmax_forward(
        square.data.data(), c.workspace.elements(square) / c.batch.length, c.batch.length);
  });
  on_backward(op, Pass::Backward, [c, &square] {
    softmax_backward(square.gradient->data(),
                     square.data.data(),
                     c.workspace.elements(square) / c.batch.length,
                     c.batch.length);
  });
}

Value& Tape::context(const Op& op, Value& square, const Part& v) {
  const TransformerConfig& config = context_.config;
  Value& out = context_.workspace.make(Extent::Tokens, config.heads * config.head_dim());
  const TapeContext c = context_;
  on_forward([c, v, &square, &out] {
    context_forward(shape_of(c.config, c.batch),
                    {c.workspace.write(out), out.width},
                    square.data.data(),
                    read(v));
  });
  on_backward(op, Pass::Backward, [c, v, &square, &out] {
    context_backward(shape_of(c.config, c.batch),
                     c.workspace.write_gradient(square).data,
                     write_gradient(c, v),
                     read_gradient({&out, 0}),
                     square.data.data(),
                     read(v));
    c.workspace.release_gradient(out);
  });
  return out;
}

Value& Tape::attention(const Op& op, const Part& /*q*/, const Part& /*k*/, const Part& /*v*/) {
  throw std::logic_error("the CPU backend has no fused attention: " + op.name);
}

}  // namespace stepsim::cpu

#include <cmath>

#include "calibrate/cuda/training/tape.h"

namespace stepsim::cuda {
namespace {

ConstHeads read(const HeadsOf<Value>& heads) {
  return {heads.value->array().at(heads.column), heads.value->width};
}

/// q, k and v may be columns of one value: each writes its own part of the gradient.
Heads write_gradient(const TapeContext& c, const HeadsOf<Value>& heads) {
  return {c.workspace.write_gradient(*heads.value).array.at(heads.column), heads.value->width};
}

/// Cosines, then sines, of the angles position * theta^(-2 i / head_dim), theta = 10000.
/// Source: Su et al. 2104.09864.
std::vector<float> rotary_angles(std::int64_t positions, std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  std::vector<float> table(static_cast<std::size_t>(2 * positions * half));
  for (std::int64_t position = 0; position < positions; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
      const double angle = static_cast<double>(position) * std::pow(10000.0, exponent);
      const auto at = static_cast<std::size_t>(position * half + i);
      table[at] = static_cast<float>(std::cos(angle));
      table[static_cast<std::size_t>(positions * half) + at] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace

void Tape::rotary(const Op& op, const Part& q, const Part& k) {
  const std::int64_t half = config().head_dim() / 2;
  const std::int64_t positions = config().max_length;
  if (rotary_table_.data() == nullptr) {
    const std::vector<float> table = rotary_angles(positions, config().head_dim());
    rotary_table_.reserve(table.size() * sizeof(float));
    copy_to_device(
        context_.stream, rotary_table_.data(), table.data(), table.size() * sizeof(float));
    context_.stream.synchronize();
  }
  const float* cosine = rotary_table_.as<float>();
  const float* sine = cosine + positions * half;
  const TapeContext& c = context_;
  const auto turn = [&c, cosine, sine](const Heads& x, std::int64_t heads, bool inverse) {
    rotate(c.stream,
           x,
           heads,
           c.config.head_dim(),
           c.batch.positions(),
           c.batch.size().rows,
           cosine,
           sine,
           inverse);
  };
  on_forward([&c, turn, q, k] {
    turn({q.value->array().at(q.column), q.value->width}, c.config.heads, false);
    turn({k.value->array().at(k.column), k.value->width}, c.config.kv_heads, false);
  });
  on_backward(op, Pass::Backward, [&c, turn, q, k] {
    turn(write_gradient(c, q), c.config.heads, true);
    turn(write_gradient(c, k), c.config.kv_heads, true);
  });
}

DenseAttention Tape::dense_shape() const {
  const Batch& batch = context_.batch;
  DenseAttention shape;
  shape.samples = batch.size().samples;
  shape.length = batch.size().length;
  shape.heads = config().heads;
  shape.kv_heads = config().kv_heads;
  shape.head_dim = config().head_dim();
  shape.mask.lengths = batch.size().has_padding() ? batch.lengths() : nullptr;
  shape.mask.causal = config().causal;
  shape.mask.window = config().window;
  shape.tf32 = config().dtype == Dtype::Tf32;
  return shape;
}

DenseCopies Tape::dense_copies(const HeadCopies& heads) const {
  Workspace& workspace = context_.workspace;
  return {workspace.write(*heads.q),
          workspace.write(*heads.k),
          workspace.write(*heads.v),
          workspace.scratch(2 * dense_shape().head_elements(), dtype())};
}

Value& Tape::scores(const Op& op, const Part& q, const Part& k) {
  Value& out = context_.workspace.make(Extent::Scores, config().heads, dtype());
  HeadCopies& heads = copies_of_[&out];
  const std::int64_t width = config().heads * config().head_dim();
  for (Value** copy : {&heads.q, &heads.k, &heads.v}) {
    *copy = &context_.workspace.make(Extent::Tokens, width, dtype());
  }
  const TapeContext& c = context_;
  on_forward([this, &c, &heads, q, k, &out] {
    dense_scores_forward(c.stream,
                         c.gemm,
                         dense_shape(),
                         c.workspace.write(out),
                         dense_copies(heads),
                         read(q),
                         read(k));
  });
  on_backward(op, Pass::Backward, [this, &c, &heads, q, k, &out] {
    dense_scores_backward(c.stream,
                          c.gemm,
                          dense_shape(),
                          out.gradient_array(),
                          dense_copies(heads),
                          write_gradient(c, q),
                          write_gradient(c, k));
    c.workspace.release_gradient(out);
  });
  return out;
}

/// In place: the backward needs the probabilities only.
void Tape::softmax(const Op& op, Value& square) {
  const TapeContext& c = context_;
  on_forward(
      [this, &c, &square] { dense_softmax_forward(c.stream, dense_shape(), square.array()); });
  on_backward(op, Pass::Backward, [this, &c, &square] {
    dense_softmax_backward(c.stream, dense_shape(), square.gradient_array(), square.array());
  });
}

Value& Tape::context(const Op& op, Value& square, const Part& v) {
  Value& out =
      context_.workspace.make(Extent::Tokens, config().heads * config().head_dim(), dtype());
  const HeadCopies& heads = copies_of_.at(&square);
  const TapeContext& c = context_;
  on_forward([this, &c, &heads, v, &square, &out] {
    dense_context_forward(c.stream,
                          c.gemm,
                          dense_shape(),
                          {c.workspace.write(out), out.width},
                          dense_copies(heads),
                          square.array(),
                          read(v));
  });
  on_backward(op, Pass::Backward, [this, &c, &heads, v, &square, &out] {
    dense_context_backward(c.stream,
                           c.gemm,
                           dense_shape(),
                           c.workspace.write_gradient(square).array,
                           dense_copies(heads),
                           write_gradient(c, v),
                           {out.gradient_array(), out.width},
                           square.array());
    c.workspace.release_gradient(out);
  });
  return out;
}

SdpaShape Tape::sdpa_shape(const BatchSize& size) const {
  SdpaShape shape = sdpa_form_;
  shape.samples = size.samples;
  shape.length = size.length;
  shape.packed = size.packed;
  shape.masked = !size.packed && !config().causal && size.has_padding();
  return shape;
}

Value& Tape::attention(const Op& op, const Part& q, const Part& k, const Part& v) {
  Value& out =
      context_.workspace.make(Extent::Tokens, config().heads * config().head_dim(), dtype());
  Value& statistics = context_.workspace.make(Extent::Padded, config().heads, Dtype::F32);
  const TapeContext& c = context_;
  sdpa_form_.dtype = config().dtype;
  sdpa_form_.heads = config().heads;
  sdpa_form_.kv_heads = config().kv_heads;
  sdpa_form_.head_dim = config().head_dim();
  sdpa_form_.causal = config().causal;
  sdpa_form_.window = config().window;
  sdpa_form_.q_stride = q.value->width;
  sdpa_form_.kv_stride = k.value->width;
  sdpa_form_.o_stride = out.width;
  const auto sequences = [&c] { return SdpaSequences{c.batch.lengths(), c.batch.offsets()}; };
  on_forward([this, &c, sequences, q, k, v, &out, &statistics] {
    SdpaForward arrays;
    arrays.q = read(q).array;
    arrays.k = read(k).array;
    arrays.v = read(v).array;
    arrays.o = c.workspace.write(out);
    arrays.statistics = static_cast<float*>(c.workspace.write(statistics).data);
    c.sdpa.forward(c.stream, sdpa_shape(c.batch.size()), sequences(), arrays);
  });
  on_backward(op, Pass::Backward, [this, &c, sequences, q, k, v, &out, &statistics] {
    SdpaBackward arrays;
    arrays.q = read(q).array;
    arrays.k = read(k).array;
    arrays.v = read(v).array;
    arrays.o = out.array();
    arrays.d_o = out.gradient_array();
    arrays.statistics = statistics.data.as<float>();
    arrays.dq = write_gradient(c, q).array;
    arrays.dk = write_gradient(c, k).array;
    arrays.dv = write_gradient(c, v).array;
    c.sdpa.backward(c.stream, sdpa_shape(c.batch.size()), sequences(), arrays);
    c.workspace.release_gradient(out);
  });
  return out;
}

}  // namespace stepsim::cuda

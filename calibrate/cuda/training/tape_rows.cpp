#include "calibrate/cuda/training/tape.h"

namespace stepsim::cuda {
namespace {

const std::int32_t* index_of(const Batch& batch, TokenIndex index) {
  switch (index) {
    case TokenIndex::Ids:
      return batch.ids();
    case TokenIndex::Positions:
      return batch.positions();
    case TokenIndex::Types:
      return batch.types();
  }
  return batch.ids();
}

}  // namespace

Value& Tape::lookup(const Op& op, TokenIndex index) {
  const auto table = static_cast<std::size_t>(parameters_of(op).at(0));
  constexpr float kEmbeddingBound = 0.05F;
  initialise(table, kEmbeddingBound, 0);
  Value& out = context_.workspace.make(Extent::Tokens, op.n, dtype());
  const TapeContext& c = context_;
  on_forward([&c, index, table, &out] {
    gather_rows(c.stream,
                c.workspace.write(out),
                c.store.weights(table),
                index_of(c.batch, index),
                c.batch.size().rows,
                out.width);
  });
  on_backward(op, Pass::Backward, [&c, index, table, &out] {
    scatter_add_rows(c.stream,
                     c.store.gradient(table),
                     out.gradient_array(),
                     index_of(c.batch, index),
                     c.batch.size().rows,
                     out.width);
    c.workspace.release_gradient(out);
  });
  return out;
}

Value& Tape::sum(const Op& op, std::vector<Value*> terms) {
  Value& out = context_.workspace.make(Extent::Tokens, op.n, dtype());
  const TapeContext& c = context_;
  on_forward([&c, terms, &out] {
    add_elements(c.stream,
                 c.workspace.write(out),
                 terms[0]->array(),
                 terms[1]->array(),
                 terms.size() > 2 ? ConstArray(terms[2]->array()) : ConstArray(),
                 c.workspace.elements(out));
  });
  on_backward(op, Pass::Backward, [&c, terms, &out] {
    for (std::size_t i = 1; i < terms.size(); ++i) {
      const GradientSlot slot = c.workspace.write_gradient(*terms[i]);
      scaled_copy(
          c.stream, slot.array, out.gradient_array(), 1.0F, c.workspace.elements(out), slot.store);
    }
    Workspace::move_gradient(out, *terms[0]);
  });
  return out;
}

Value& Tape::norm(const Op& op, Value& x) {
  const auto& list = parameters_of(op);
  const ModelFamily family = config().family;
  const bool rms = family == ModelFamily::Llama || family == ModelFamily::Nanochat;
  NormWeights weights;
  NormGradients gradients;
  if (!list.empty()) {
    const auto gain = static_cast<std::size_t>(list[0]);
    initialise(gain, 0, 1);
    weights.gain = context_.store.weights(gain);
    gradients.gain = context_.store.gradient(gain);
  }
  if (list.size() > 1) {
    const auto bias = static_cast<std::size_t>(list[1]);
    weights.bias = context_.store.weights(bias);
    gradients.bias = context_.store.gradient(bias);
  }
  Value& out = context_.workspace.make(x.extent, op.n, dtype());
  Value& saved = context_.workspace.make(x.extent, 2, Dtype::F32);
  const TapeContext& c = context_;
  on_forward([&c, rms, weights, &x, &out, &saved] {
    norm_forward(c.stream,
                 rms,
                 c.workspace.write(out),
                 static_cast<float*>(c.workspace.write(saved).data),
                 x.array(),
                 weights,
                 c.workspace.rows(x),
                 x.width);
  });
  on_backward(op, Pass::Backward, [&c, rms, weights, gradients, &x, &out, &saved] {
    const GradientSlot dx = c.workspace.write_gradient(x);
    const std::int64_t rows = c.workspace.rows(x);
    norm_backward(
        c.stream,
        rms,
        dx.array,
        dx.store,
        gradients,
        out.gradient_array(),
        x.array(),
        saved.data.as<float>(),
        weights,
        rows,
        x.width,
        static_cast<float*>(c.workspace.scratch(norm_scratch(rows, x.width), Dtype::F32).data));
    c.workspace.release_gradient(out);
  });
  return out;
}

Value& Tape::activation(const Op& op, Value& x) {
  Value& out = context_.workspace.make(x.extent, op.n, dtype());
  const ActivationKind kind = activation_of(config().family, x.extent == Extent::Samples);
  const TapeContext& c = context_;
  on_forward([&c, kind, &x, &out] {
    activation_forward(
        c.stream, kind, c.workspace.write(out), x.array(), c.workspace.elements(out));
  });
  on_backward(op, Pass::Backward, [&c, kind, &x, &out] {
    activation_backward(c.stream,
                        kind,
                        c.workspace.write_gradient(x).array,
                        out.gradient_array(),
                        x.array(),
                        c.workspace.elements(out));
    c.workspace.release_gradient(out);
  });
  return out;
}

Value& Tape::swiglu(const Op& op, Value& gate, Value& up) {
  Value& out = context_.workspace.make(Extent::Tokens, op.n, dtype());
  const TapeContext& c = context_;
  on_forward([&c, &gate, &up, &out] {
    swiglu_forward(
        c.stream, c.workspace.write(out), gate.array(), up.array(), c.workspace.elements(out));
  });
  on_backward(op, Pass::Backward, [&c, &gate, &up, &out] {
    swiglu_backward(c.stream,
                    c.workspace.write_gradient(gate).array,
                    c.workspace.write_gradient(up).array,
                    out.gradient_array(),
                    gate.array(),
                    up.array(),
                    c.workspace.elements(out));
    c.workspace.release_gradient(out);
  });
  return out;
}

Value& Tape::pool(const Op& op, Value& x) {
  Value& out = context_.workspace.make(Extent::Samples, op.n, dtype());
  const bool mean = config().family == ModelFamily::TokenClassifier;
  const TapeContext& c = context_;
  on_forward([&c, mean, &x, &out] {
    pool_forward(c.stream, c.workspace.write(out), x.array(), c.batch.sequences(), x.width, mean);
  });
  on_backward(op, Pass::Backward, [&c, mean, &x, &out] {
    pool_backward(c.stream,
                  c.workspace.write_gradient(x).array,
                  out.gradient_array(),
                  c.batch.sequences(),
                  x.width,
                  mean);
    c.workspace.release_gradient(out);
  });
  return out;
}

void Tape::loss(const Op& op, Value& logits) {
  loss_extent_ = logits.extent;
  const bool by_sample = logits.extent == Extent::Samples;
  Value& losses = context_.workspace.make(logits.extent, 1, Dtype::F32);
  Value& saved = context_.workspace.make(logits.extent, 2, Dtype::F32);
  const TapeContext& c = context_;
  const auto targets = [&c, by_sample] { return by_sample ? c.batch.labels() : c.batch.targets(); };
  on_forward([this, &c, targets, &logits, &losses, &saved] {
    auto* each = static_cast<float*>(c.workspace.write(losses).data);
    cross_entropy_forward(c.stream,
                          each,
                          static_cast<float*>(c.workspace.write(saved).data),
                          logits.array(),
                          targets(),
                          c.workspace.rows(logits),
                          logits.width);
    sum_floats(c.stream, loss_sum_.as<float>(), each, c.workspace.rows(logits));
  });
  on_backward(op, Pass::Backward, [&c, targets, by_sample, &logits, &saved] {
    const std::int64_t count = by_sample ? c.batch.size().samples : c.batch.size().useful_tokens;
    cross_entropy_backward(c.stream,
                           c.workspace.write_gradient(logits).array,
                           logits.array(),
                           saved.data.as<float>(),
                           targets(),
                           static_cast<float>(c.batch.loss_scale() / static_cast<double>(count)),
                           c.workspace.rows(logits),
                           logits.width);
  });
}

}  // namespace stepsim::cuda

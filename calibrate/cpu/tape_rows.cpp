#include "calibrate/cpu/activation.h"
#include "calibrate/cpu/loss.h"
#include "calibrate/cpu/norm.h"
#include "calibrate/cpu/rows.h"
#include "calibrate/cpu/tape.h"

namespace stepsim::cpu {
namespace {

std::vector<std::int32_t> Batch::*index_of(TokenIndex index) {
  switch (index) {
    case TokenIndex::Ids:
      return &Batch::ids;
    case TokenIndex::Positions:
      return &Batch::positions;
    case TokenIndex::Types:
      return &Batch::types;
  }
  return &Batch::ids;
}

}  // namespace

Value& Tape::lookup(const Op& op, TokenIndex token_index) {
  const auto index = index_of(token_index);
  const auto table = static_cast<std::size_t>(parameters_of(op).at(0));
  constexpr float kEmbeddingBound = 0.05F;
  initialise(table, kEmbeddingBound, 0);
  Value& out = context_.workspace.make(Extent::Tokens, op.n);
  const TapeContext c = context_;
  on_forward([c, index, table, &out] {
    gather_rows(c.workspace.write(out),
                c.store.weights(table),
                (c.batch.*index).data(),
                c.batch.tokens(),
                out.width);
  });
  on_backward(op, Pass::Backward, [c, index, table, &out] {
    scatter_add_rows(c.store.gradient(table),
                     out.gradient->data(),
                     (c.batch.*index).data(),
                     c.batch.tokens(),
                     out.width);
    c.workspace.release_gradient(out);
  });
  return out;
}

Value& Tape::sum(const Op& op, std::vector<Value*> terms) {
  Value& out = context_.workspace.make(Extent::Tokens, op.n);
  const TapeContext c = context_;
  on_forward([c, terms, &out] {
    float* y = c.workspace.write(out);
    const std::int64_t count = c.workspace.elements(out);
    add_elements(y, terms[0]->data.data(), terms[1]->data.data(), count);
    for (std::size_t i = 2; i < terms.size(); ++i) {
      accumulate(y, terms[i]->data.data(), count);
    }
  });
  on_backward(op, Pass::Backward, [c, terms, &out] {
    const std::int64_t count = c.workspace.elements(out);
    for (std::size_t i = 1; i < terms.size(); ++i) {
      const GradientSlot slot = c.workspace.write_gradient(*terms[i]);
      if (slot.store == Store::Assign) {
        scaled_copy(slot.data, out.gradient->data(), 1.0F, count);
      } else {
        accumulate(slot.data, out.gradient->data(), count);
      }
    }
    Workspace::move_gradient(out, *terms[0]);
  });
  return out;
}

Value& Tape::norm(const Op& op, Value& x) {
  const auto& list = parameters_of(op);
  const bool rms = context_.config.family == ModelFamily::Llama ||
                   context_.config.family == ModelFamily::Nanochat;
  NormWeights weights{nullptr, nullptr};
  NormGradients gradients{nullptr, nullptr};
  if (!list.empty()) {
    const auto gain = static_cast<std::size_t>(list[0]);
    initialise(gain, 0, 1);
    weights.gain = context_.store.weights(gain);
    gradients.gain = context_.store.gradient(gain);
  }
  if (list.size() > 1) {
    const auto bias = static_cast<std::size_t>(list[1]);
    initialise(bias, 0, 0);
    weights.bias = context_.store.weights(bias);
    gradients.bias = context_.store.gradient(bias);
  }
  Value& out = context_.workspace.make(x.extent, op.n);
  Value& saved = context_.workspace.make(x.extent, 2);
  const TapeContext c = context_;
  on_forward([c, rms, weights, &x, &out, &saved] {
    const auto run = rms ? rms_norm_forward : layer_norm_forward;
    run(c.workspace.write(out),
        c.workspace.write(saved),
        x.data.data(),
        weights,
        c.workspace.rows(x),
        x.width);
  });
  on_backward(op, Pass::Backward, [c, rms, weights, gradients, &x, &out, &saved] {
    const GradientSlot dx = c.workspace.write_gradient(x);
    const auto run = rms ? rms_norm_backward : layer_norm_backward;
    run(dx.data,
        dx.store,
        gradients,
        out.gradient->data(),
        x.data.data(),
        saved.data.data(),
        weights,
        c.workspace.rows(x),
        x.width);
    c.workspace.release_gradient(out);
  });
  return out;
}

Value& Tape::activation(const Op& op, Value& x) {
  Value& out = context_.workspace.make(x.extent, op.n);
  const ActivationKind kind = activation_of(context_.config.family, x.extent == Extent::Samples);
  const TapeContext c = context_;
  on_forward([c, kind, &x, &out] {
    activation_forward(kind, c.workspace.write(out), x.data.data(), c.workspace.elements(out));
  });
  on_backward(op, Pass::Backward, [c, kind, &x, &out] {
    activation_backward(kind,
                        c.workspace.write_gradient(x).data,
                        out.gradient->data(),
                        x.data.data(),
                        c.workspace.elements(out));
    c.workspace.release_gradient(out);
  });
  return out;
}

Value& Tape::swiglu(const Op& op, Value& gate, Value& up) {
  Value& out = context_.workspace.make(Extent::Tokens, op.n);
  const TapeContext c = context_;
  on_forward([c, &gate, &up, &out] {
    swiglu_forward(
        c.workspace.write(out), gate.data.data(), up.data.data(), c.workspace.elements(out));
  });
  on_backward(op, Pass::Backward, [c, &gate, &up, &out] {
    swiglu_backward(c.workspace.write_gradient(gate).data,
                    c.workspace.write_gradient(up).data,
                    out.gradient->data(),
                    gate.data.data(),
                    up.data.data(),
                    c.workspace.elements(out));
    c.workspace.release_gradient(out);
  });
  return out;
}

Value& Tape::pool(const Op& op, Value& x) {
  Value& out = context_.workspace.make(Extent::Samples, op.n);
  const bool mean = context_.config.family == ModelFamily::TokenClassifier;
  const TapeContext c = context_;
  on_forward([c, mean, &x, &out] {
    float* y = c.workspace.write(out);
    if (mean) {
      pool_forward(
          y, x.data.data(), c.batch.pool_weights.data(), c.batch.samples, c.batch.length, x.width);
    } else {
      first_token_forward(y, x.data.data(), c.batch.samples, c.batch.length, x.width);
    }
  });
  on_backward(op, Pass::Backward, [c, mean, &x, &out] {
    float* dx = c.workspace.write_gradient(x).data;
    if (mean) {
      pool_backward(dx,
                    out.gradient->data(),
                    c.batch.pool_weights.data(),
                    c.batch.samples,
                    c.batch.length,
                    x.width);
    } else {
      first_token_backward(dx, out.gradient->data(), c.batch.samples, c.batch.length, x.width);
    }
    c.workspace.release_gradient(out);
  });
  return out;
}

void Tape::loss(const Op& op, Value& logits) {
  Value& probabilities = context_.workspace.make(logits.extent, logits.width);
  const auto* targets =
      logits.extent == Extent::Samples ? &context_.batch.labels : &context_.batch.targets;
  const TapeContext c = context_;
  on_forward([this, c, targets, &logits, &probabilities] {
    loss_ = cross_entropy_forward(c.workspace.write(probabilities),
                                  logits.data.data(),
                                  targets->data(),
                                  c.workspace.rows(logits),
                                  logits.width);
  });
  on_backward(op, Pass::Backward, [c, targets, &logits, &probabilities] {
    cross_entropy_backward(c.workspace.write_gradient(logits).data,
                           probabilities.data.data(),
                           targets->data(),
                           c.batch.loss_scale,
                           c.workspace.rows(logits),
                           logits.width);
  });
}

}  // namespace stepsim::cpu

#include "calibrate/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "calibrate/cpu/vector_math.h"

namespace stepsim::cpu {
namespace {

/// Very negative, yet finite: a masked key's weight becomes exactly zero.
constexpr float kMasked = -1e30F;

/// The rows of one sample and the columns of one head.
ConstMatrix head_of(const DenseAttention& shape,
                    ConstHeads x,
                    std::int64_t sample,
                    std::int64_t head) {
  return {x.data + sample * shape.length * x.stride + head * shape.head_dim,
          shape.length,
          shape.head_dim,
          x.stride};
}

Matrix head_of(const DenseAttention& shape, Heads x, std::int64_t sample, std::int64_t head) {
  return {x.data + sample * shape.length * x.stride + head * shape.head_dim,
          shape.length,
          shape.head_dim,
          x.stride};
}

std::int64_t square_at(const DenseAttention& shape, std::int64_t sample, std::int64_t head) {
  return (sample * shape.heads + head) * shape.length * shape.length;
}

std::int64_t kv_head(const DenseAttention& shape, std::int64_t head) {
  return head * shape.kv_heads / shape.heads;
}

/// The first query head of a group overwrites the gradients of its key head; the others add.
Store store_of(const DenseAttention& shape, std::int64_t head) {
  const bool first = head == 0 || kv_head(shape, head - 1) != kv_head(shape, head);
  return first ? Store::Assign : Store::Add;
}

void mask(const DenseAttention& shape, float* scores, std::int64_t sample) {
  const std::int64_t length = shape.length;
  const std::int64_t useful = shape.mask.lengths != nullptr ? shape.mask.lengths[sample] : length;
  for (std::int64_t query = 0; query < length; ++query) {
    float* __restrict row = scores + query * length;
    std::fill(row + useful, row + length, kMasked);
    if (shape.mask.causal) {
      std::fill(row + query + 1, row + length, kMasked);
    }
    if (shape.mask.window > 0) {
      std::fill(row, row + std::max<std::int64_t>(0, query + 1 - shape.mask.window), kMasked);
      if (!shape.mask.causal) {
        std::fill(row + std::min(length, query + shape.mask.window), row + length, kMasked);
      }
    }
  }
}

float scale_of(const DenseAttention& shape) {
  return 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
}

}  // namespace

void dense_scores_forward(const Stream& /*stream*/,
                          const Gemm& /*gemm*/,
                          const DenseAttention& shape,
                          float* scores,
                          HeadViews& views,
                          ConstHeads q,
                          ConstHeads k) {
  views.q = q;
  views.k = k;
  const float scale = scale_of(shape);
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      float* square = scores + square_at(shape, sample, head);
      gemm_nt({square, shape.length, shape.length, shape.length},
              head_of(shape, q, sample, head),
              head_of(shape, k, sample, kv_head(shape, head)),
              scale,
              Store::Assign);
      mask(shape, square, sample);
    }
  }
}

void dense_scores_backward(const Stream& /*stream*/,
                           const Gemm& /*gemm*/,
                           const DenseAttention& shape,
                           const float* dscores,
                           const HeadViews& views,
                           Heads dq,
                           Heads dk) {
  const float scale = scale_of(shape);
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const ConstMatrix square{
          dscores + square_at(shape, sample, head), shape.length, shape.length, shape.length};
      const std::int64_t shared = kv_head(shape, head);
      gemm_nn(head_of(shape, dq, sample, head),
              square,
              head_of(shape, views.k, sample, shared),
              scale,
              Store::Assign);
      gemm_tn(head_of(shape, dk, sample, shared),
              square,
              head_of(shape, views.q, sample, head),
              scale,
              store_of(shape, head));
    }
  }
}

void dense_softmax_forward(const Stream& /*stream*/, const DenseAttention& shape, float* scores) {
  const std::int64_t length = shape.length;
  for (std::int64_t r = 0; r < shape.score_rows(); ++r) {
    float* row = scores + r * length;
    const float top = largest(row, length);
    for (std::int64_t i = 0; i < length; ++i) {
      row[i] = exp_of(row[i] - top);
    }
    const float inverse = 1.0F / sum(row, length);
    for (std::int64_t i = 0; i < length; ++i) {
      row[i] *= inverse;
    }
  }
}

void dense_softmax_backward(const Stream& /*stream*/,
                            const DenseAttention& shape,
                            float* gradient,
                            const float* probabilities) {
  const std::int64_t length = shape.length;
  for (std::int64_t r = 0; r < shape.score_rows(); ++r) {
    float* __restrict g = gradient + r * length;
    const float* __restrict p = probabilities + r * length;
    const float inner = dot(g, p, length);
    for (std::int64_t i = 0; i < length; ++i) {
      g[i] = p[i] * (g[i] - inner);
    }
  }
}

void dense_context_forward(const Stream& /*stream*/,
                           const Gemm& /*gemm*/,
                           const DenseAttention& shape,
                           Heads context,
                           HeadViews& views,
                           const float* probabilities,
                           ConstHeads v) {
  views.v = v;
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const ConstMatrix square{
          probabilities + square_at(shape, sample, head), shape.length, shape.length, shape.length};
      gemm_nn(head_of(shape, context, sample, head),
              square,
              head_of(shape, v, sample, kv_head(shape, head)),
              1.0F,
              Store::Assign);
    }
  }
}

void dense_context_backward(const Stream& /*stream*/,
                            const Gemm& /*gemm*/,
                            const DenseAttention& shape,
                            float* dprobabilities,
                            const HeadViews& views,
                            Heads dv,
                            ConstHeads dcontext,
                            const float* probabilities) {
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t at = square_at(shape, sample, head);
      const std::int64_t shared = kv_head(shape, head);
      const ConstMatrix out = head_of(shape, dcontext, sample, head);
      gemm_nt({dprobabilities + at, shape.length, shape.length, shape.length},
              out,
              head_of(shape, views.v, sample, shared),
              1.0F,
              Store::Assign);
      gemm_tn(head_of(shape, dv, sample, shared),
              {probabilities + at, shape.length, shape.length, shape.length},
              out,
              1.0F,
              store_of(shape, head));
    }
  }
}

void rotate(const Stream& /*stream*/,
            Heads x,
            std::int64_t heads,
            std::int64_t head_dim,
            const std::int32_t* positions,
            std::int64_t tokens,
            const float* cosine,
            const float* sine,
            bool inverse) {
  const std::int64_t half = head_dim / 2;
  const float sign = inverse ? -1.0F : 1.0F;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const float* __restrict c = cosine + positions[token] * half;
    const float* __restrict s = sine + positions[token] * half;
    for (std::int64_t head = 0; head < heads; ++head) {
      float* __restrict low = x.data + token * x.stride + head * head_dim;
      float* __restrict high = low + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = low[i];
        const float b = high[i];
        low[i] = a * c[i] - sign * b * s[i];
        high[i] = b * c[i] + sign * a * s[i];
      }
    }
  }
}

}  // namespace stepsim::cpu

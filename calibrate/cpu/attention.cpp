#include "calibrate/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "calibrate/cpu/gemm.h"
#include "calibrate/cpu/vector_math.h"

namespace stepsim::cpu {
namespace {

/// The rows of one sample and the columns of one head.
ConstMatrix head_of(const AttentionShape& shape,
                    ConstHeads x,
                    std::int64_t sample,
                    std::int64_t head) {
  return {x.data + sample * shape.length * x.stride + head * shape.head_dim,
          shape.length,
          shape.head_dim,
          x.stride};
}

Matrix head_of(const AttentionShape& shape, Heads x, std::int64_t sample, std::int64_t head) {
  return {x.data + sample * shape.length * x.stride + head * shape.head_dim,
          shape.length,
          shape.head_dim,
          x.stride};
}

std::int64_t square_at(const AttentionShape& shape, std::int64_t sample, std::int64_t head) {
  return (sample * shape.heads + head) * shape.length * shape.length;
}

std::int64_t kv_head(const AttentionShape& shape, std::int64_t head) {
  return head * shape.kv_heads / shape.heads;
}

/// The first query head of a group overwrites the gradients of its key head; the others add.
Store store_of(const AttentionShape& shape, std::int64_t head) {
  const bool first = head == 0 || kv_head(shape, head - 1) != kv_head(shape, head);
  return first ? Store::Assign : Store::Add;
}

void mask(const AttentionShape& shape, float* scores, std::int64_t sample) {
  const std::int64_t length = shape.length;
  const float* __restrict bias = shape.padding_bias + sample * length;
  for (std::int64_t query = 0; query < length; ++query) {
    float* __restrict row = scores + query * length;
    for (std::int64_t key = 0; key < length; ++key) {
      row[key] += bias[key];
    }
    if (shape.causal) {
      std::fill(row + query + 1, row + length, kMasked);
    }
    if (shape.window > 0) {
      std::fill(row, row + std::max<std::int64_t>(0, query + 1 - shape.window), kMasked);
      if (!shape.causal) {
        std::fill(row + std::min(length, query + shape.window), row + length, kMasked);
      }
    }
  }
}

float scale_of(const AttentionShape& shape) {
  return 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
}

}  // namespace

void scores_forward(const AttentionShape& shape, float* scores, ConstHeads q, ConstHeads k) {
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

void scores_backward(const AttentionShape& shape,
                     Heads dq,
                     Heads dk,
                     const float* dscores,
                     ConstHeads q,
                     ConstHeads k) {
  const float scale = scale_of(shape);
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const ConstMatrix square{
          dscores + square_at(shape, sample, head), shape.length, shape.length, shape.length};
      const std::int64_t shared = kv_head(shape, head);
      gemm_nn(head_of(shape, dq, sample, head),
              square,
              head_of(shape, k, sample, shared),
              scale,
              Store::Assign);
      gemm_tn(head_of(shape, dk, sample, shared),
              square,
              head_of(shape, q, sample, head),
              scale,
              store_of(shape, head));
    }
  }
}

void softmax_forward(float* scores, std::int64_t rows, std::int64_t length) {
  for (std::int64_t r = 0; r < rows; ++r) {
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

void softmax_backward(float* gradient,
                      const float* probabilities,
                      std::int64_t rows,
                      std::int64_t length) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* __restrict g = gradient + r * length;
    const float* __restrict p = probabilities + r * length;
    const float inner = dot(g, p, length);
    for (std::int64_t i = 0; i < length; ++i) {
      g[i] = p[i] * (g[i] - inner);
    }
  }
}

void context_forward(const AttentionShape& shape,
                     Heads context,
                     const float* probabilities,
                     ConstHeads v) {
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

void context_backward(const AttentionShape& shape,
                      float* dprobabilities,
                      Heads dv,
                      ConstHeads dcontext,
                      const float* probabilities,
                      ConstHeads v) {
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t at = square_at(shape, sample, head);
      const std::int64_t shared = kv_head(shape, head);
      const ConstMatrix out = head_of(shape, dcontext, sample, head);
      gemm_nt({dprobabilities + at, shape.length, shape.length, shape.length},
              out,
              head_of(shape, v, sample, shared),
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

void rotate(Heads x,
            std::int64_t heads,
            std::int64_t head_dim,
            std::int64_t samples,
            std::int64_t length,
            const float* cosine,
            const float* sine,
            bool inverse) {
  const std::int64_t half = head_dim / 2;
  const float sign = inverse ? -1.0F : 1.0F;
  for (std::int64_t token = 0; token < samples * length; ++token) {
    const float* __restrict c = cosine + (token % length) * half;
    const float* __restrict s = sine + (token % length) * half;
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

#pragma once

#include <cstdint>

namespace stepsim::cpu {

/// Dense attention of one batch. Rows of q, k, v, context are padded tokens
/// [sample * length + position]; scores are [sample][head][query][key].
struct AttentionShape {
  std::int64_t samples = 0;
  std::int64_t length = 0;  ///< Padded.
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< Divides heads: query head h reads key head h * kv_heads / heads.
  std::int64_t head_dim = 0;
  bool causal = false;
  std::int64_t window = 0;  ///< A query sees itself and window - 1 keys before it; 0 = all.
  const float* padding_bias = nullptr;  ///< [sample * length] 0, or very negative where padded.
};

/// A matrix of heads: features of head h start at column h * head_dim.
struct ConstHeads {
  const float* data;
  std::int64_t stride;
};
struct Heads {
  float* data;
  std::int64_t stride;
};

/// Very negative, yet finite: a masked key's weight becomes exactly zero.
constexpr float kMasked = -1e30F;

/// scores = q k^T / sqrt(head_dim) plus the masks (padding, causal, window).
void scores_forward(const AttentionShape& shape, float* scores, ConstHeads q, ConstHeads k);
/// dq and dk from the gradient of the scores.
void scores_backward(const AttentionShape& shape,
                     Heads dq,
                     Heads dk,
                     const float* dscores,
                     ConstHeads q,
                     ConstHeads k);

/// Rows of scores to probabilities, in place, and back: dscores = p * (dp - sum(dp p)), in place.
void softmax_forward(float* scores, std::int64_t rows, std::int64_t length);
void softmax_backward(float* gradient,
                      const float* probabilities,
                      std::int64_t rows,
                      std::int64_t length);

/// context = probabilities v.
void context_forward(const AttentionShape& shape,
                     Heads context,
                     const float* probabilities,
                     ConstHeads v);
void context_backward(const AttentionShape& shape,
                      float* dprobabilities,
                      Heads dv,
                      ConstHeads dcontext,
                      const float* probabilities,
                      ConstHeads v);

/// Rotates pairs (i, i + head_dim / 2) of each head by position; `inverse` for the backward.
/// `cosine` and `sine` are [position][head_dim / 2].
void rotate(Heads x,
            std::int64_t heads,
            std::int64_t head_dim,
            std::int64_t samples,
            std::int64_t length,
            const float* cosine,
            const float* sine,
            bool inverse);

}  // namespace stepsim::cpu

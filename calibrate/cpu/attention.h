#pragma once

#include <cstdint>

#include "calibrate/cpu/device.h"
#include "calibrate/cpu/gemm.h"
#include "calibrate/training/kernel_arguments.h"

/// Dense attention of a padded batch, head by head on the features where they lie. Rows of q, k, v
/// and context are tokens [sample * length + position]; scores are [sample][head][query][key].
namespace stepsim::cpu {

/// Where a layer's heads lie. The forward notes it for the backward; a GPU keeps copies instead.
struct HeadViews {
  ConstHeads q;
  ConstHeads k;
  ConstHeads v;
};

/// scores = q k^T / sqrt(head_dim), very negative where a key is masked.
void dense_scores_forward(const Stream& stream,
                          const Gemm& gemm,
                          const DenseAttention& shape,
                          float* scores,
                          HeadViews& views,
                          ConstHeads q,
                          ConstHeads k);
/// Assigns dq and dk, from the gradient of the scores.
void dense_scores_backward(const Stream& stream,
                           const Gemm& gemm,
                           const DenseAttention& shape,
                           const float* dscores,
                           const HeadViews& views,
                           Heads dq,
                           Heads dk);

/// Turns rows of scores into probabilities, in place.
void dense_softmax_forward(const Stream& stream, const DenseAttention& shape, float* scores);
/// gradient = p * (gradient - sum(gradient p)), in place.
void dense_softmax_backward(const Stream& stream,
                            const DenseAttention& shape,
                            float* gradient,
                            const float* probabilities);

/// context = probabilities v.
void dense_context_forward(const Stream& stream,
                           const Gemm& gemm,
                           const DenseAttention& shape,
                           Heads context,
                           HeadViews& views,
                           const float* probabilities,
                           ConstHeads v);
void dense_context_backward(const Stream& stream,
                            const Gemm& gemm,
                            const DenseAttention& shape,
                            float* dprobabilities,
                            const HeadViews& views,
                            Heads dv,
                            ConstHeads dcontext,
                            const float* probabilities);

/// Rotates pairs (i, i + head_dim / 2) of each head by the angle of the token's position; the
/// backward is the `inverse`. `cosine` and `sine` are [position][head_dim / 2].
void rotate(const Stream& stream,
            Heads x,
            std::int64_t heads,
            std::int64_t head_dim,
            const std::int32_t* positions,
            std::int64_t tokens,
            const float* cosine,
            const float* sine,
            bool inverse);

}  // namespace stepsim::cpu

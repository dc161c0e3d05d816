#pragma once

#include <cstdint>

#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/kernels/gemm.h"
#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {

/// Unfused attention of a padded batch, as eager PyTorch runs it: copies of the heads, batched
/// products, mask and softmax, a score matrix in memory. Three ops each way, timed apart.
struct DenseAttention {
  std::int64_t samples = 0;
  std::int64_t length = 0;  ///< Padded.
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  ScoreMask mask;
  bool tf32 = false;

  [[nodiscard]] std::int64_t score_elements() const { return samples * heads * length * length; }
  /// Of one contiguous copy of q, k, v or o with all heads.
  [[nodiscard]] std::int64_t head_elements() const { return samples * heads * length * head_dim; }
};

/// Contiguous copies of the step's heads, [sample][head][position][head_dim]; the forward fills
/// them, the backward reads them. `scratch` is for the products before
/// they are merged, two copies long.
struct DenseCopies {
  Array q, k, v;
  Array scratch;
};

/// scores = q k^T, without scale.
void dense_scores_forward(const Stream& stream,
                          Gemm& gemm,
                          const DenseAttention& shape,
                          Array scores,
                          const DenseCopies& copies,
                          ConstHeads q,
                          ConstHeads k);
void dense_scores_backward(const Stream& stream,
                           Gemm& gemm,
                           const DenseAttention& shape,
                           ConstArray dscores,
                           const DenseCopies& copies,
                           Heads dq,
                           Heads dk);
/// Scale 1/sqrt(head_dim), mask and softmax, in place.
void dense_softmax_forward(const Stream& stream, const DenseAttention& shape, Array scores);
void dense_softmax_backward(const Stream& stream,
                            const DenseAttention& shape,
                            Array dscores,
                            ConstArray probabilities);
/// context = probabilities v.
void dense_context_forward(const Stream& stream,
                           Gemm& gemm,
                           const DenseAttention& shape,
                           Heads context,
                           const DenseCopies& copies,
                           ConstArray probabilities,
                           ConstHeads v);
void dense_context_backward(const Stream& stream,
                            Gemm& gemm,
                            const DenseAttention& shape,
                            Array dprobabilities,
                            const DenseCopies& copies,
                            Heads dv,
                            ConstHeads dcontext,
                            ConstArray probabilities);

}  // namespace stepsim::cuda

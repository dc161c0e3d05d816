#pragma once

#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/kernels/gemm.h"
#include "calibrate/training/kernel_arguments.h"

/// Dense attention as eager PyTorch runs it: copies of the heads, batched products, mask and
/// softmax, a score matrix in memory. There are three ops each way, timed apart.
namespace stepsim::cuda {

/// Contiguous copies of one layer's heads, [sample][head][position][head_dim]. The forward fills
/// them and the backward reads them. `scratch` has the size of two copies and holds products before
/// they are merged.
struct DenseCopies {
  Array q, k, v;
  Array scratch;
};

/// scores = q k^T, without the scale.
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
/// Scales by 1/sqrt(head_dim), masks and takes the softmax, in place.
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

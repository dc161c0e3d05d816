#include "calibrate/cuda/attention/dense_attention.h"

#include <cmath>

#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {
namespace {

float scale_of(const DenseAttention& shape) {
  return 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
}

/// One product a head: of contiguous [sample][head][rows][columns] operands.
GemmCall batched(const DenseAttention& shape, std::int64_t m, std::int64_t n, std::int64_t k) {
  GemmCall call;
  call.m = m;
  call.n = n;
  call.k = k;
  call.tf32 = shape.tf32;
  call.batch = shape.samples * shape.heads;
  call.stride_a = m * k;
  call.stride_b = k * n;
  call.stride_c = m * n;
  call.ldc = n;
  return call;
}

/// c = a b^T, with rows of head_dim: a score matrix.
void multiply_transposed(const Stream& stream,
                         Gemm& gemm,
                         const DenseAttention& shape,
                         Array scores,
                         ConstArray a,
                         ConstArray b) {
  GemmCall call = batched(shape, shape.length, shape.length, shape.head_dim);
  call.a = a;
  call.b = b;
  call.c = scores;
  call.lda = shape.head_dim;
  call.ldb = shape.head_dim;
  call.transpose_b = true;
  gemm.run(stream, call);
}

/// out = op(scores) x, with rows of head_dim.
void multiply_scores(const Stream& stream,
                     Gemm& gemm,
                     const DenseAttention& shape,
                     Array out,
                     ConstArray scores,
                     bool transpose,
                     ConstArray x) {
  GemmCall call = batched(shape, shape.length, shape.head_dim, shape.length);
  call.a = scores;
  call.b = x;
  call.c = out;
  call.lda = shape.length;
  call.ldb = shape.head_dim;
  call.transpose_a = transpose;
  gemm.run(stream, call);
}

void split(const Stream& stream,
           const DenseAttention& shape,
           Array out,
           ConstHeads x,
           std::int64_t kv_heads) {
  split_heads(stream, out, x, shape.samples, shape.length, shape.heads, kv_heads, shape.head_dim);
}

void merge(const Stream& stream,
           const DenseAttention& shape,
           Heads out,
           ConstArray x,
           std::int64_t kv_heads) {
  merge_heads(stream, out, x, shape.samples, shape.length, shape.heads, kv_heads, shape.head_dim);
}

/// The second half of the scratch.
Array second(const DenseAttention& shape, const DenseCopies& copies) {
  return copies.scratch.at(shape.head_elements());
}

}  // namespace

void dense_scores_forward(const Stream& stream,
                          Gemm& gemm,
                          const DenseAttention& shape,
                          Array scores,
                          const DenseCopies& copies,
                          ConstHeads q,
                          ConstHeads k) {
  split(stream, shape, copies.q, q, shape.heads);
  split(stream, shape, copies.k, k, shape.kv_heads);
  multiply_transposed(stream, gemm, shape, scores, copies.q, copies.k);
}

void dense_scores_backward(const Stream& stream,
                           Gemm& gemm,
                           const DenseAttention& shape,
                           ConstArray dscores,
                           const DenseCopies& copies,
                           Heads dq,
                           Heads dk) {
  multiply_scores(stream, gemm, shape, copies.scratch, dscores, false, copies.k);
  multiply_scores(stream, gemm, shape, second(shape, copies), dscores, true, copies.q);
  merge(stream, shape, dq, copies.scratch, shape.heads);
  merge(stream, shape, dk, second(shape, copies), shape.kv_heads);
}

void dense_softmax_forward(const Stream& stream, const DenseAttention& shape, Array scores) {
  softmax_forward(
      stream, scores, scale_of(shape), shape.mask, shape.samples, shape.heads, shape.length);
}

void dense_softmax_backward(const Stream& stream,
                            const DenseAttention& shape,
                            Array dscores,
                            ConstArray probabilities) {
  softmax_backward(stream,
                   dscores,
                   probabilities,
                   scale_of(shape),
                   shape.samples * shape.heads * shape.length,
                   shape.length);
}

void dense_context_forward(const Stream& stream,
                           Gemm& gemm,
                           const DenseAttention& shape,
                           Heads context,
                           const DenseCopies& copies,
                           ConstArray probabilities,
                           ConstHeads v) {
  split(stream, shape, copies.v, v, shape.kv_heads);
  multiply_scores(stream, gemm, shape, copies.scratch, probabilities, false, copies.v);
  merge(stream, shape, context, copies.scratch, shape.heads);
}

void dense_context_backward(const Stream& stream,
                            Gemm& gemm,
                            const DenseAttention& shape,
                            Array dprobabilities,
                            const DenseCopies& copies,
                            Heads dv,
                            ConstHeads dcontext,
                            ConstArray probabilities) {
  split(stream, shape, copies.scratch, dcontext, shape.heads);
  multiply_scores(stream, gemm, shape, second(shape, copies), probabilities, true, copies.scratch);
  multiply_transposed(stream, gemm, shape, dprobabilities, copies.scratch, copies.v);
  merge(stream, shape, dv, second(shape, copies), shape.kv_heads);
}

}  // namespace stepsim::cuda

#include "calibrate/cuda/attention/dense_attention.h"

#include <cmath>

#include <doctest/doctest.h>

#include "tests/gpu/attention_check.h"

using namespace stepsim;
using namespace stepsim::cuda;
using test::DeviceArray;
using test::DeviceInts;
using test::stream;

namespace {

/// Arrays of one problem on the device.
struct DenseArrays {
  explicit DenseArrays(const PlainAttention& problem)
      : q(problem.shape.dtype, problem.q),
        k(problem.shape.dtype, problem.k),
        v(problem.shape.dtype, problem.v),
        d_o(problem.shape.dtype, problem.d_o),
        o(problem.shape.dtype, std::vector<double>(problem.d_o.size())),
        dq(problem.shape.dtype, std::vector<double>(problem.q.size())),
        dk(problem.shape.dtype, std::vector<double>(problem.k.size())),
        dv(problem.shape.dtype, std::vector<double>(problem.v.size())) {}

  DeviceArray q, k, v, d_o, o, dq, dk, dv;
};

DenseAttention dense_of(const PlainAttention& problem, const std::int32_t* lengths) {
  const SdpaShape& shape = problem.shape;
  DenseAttention dense;
  dense.samples = shape.samples;
  dense.length = shape.length;
  dense.heads = shape.heads;
  dense.kv_heads = shape.kv_heads;
  dense.head_dim = shape.head_dim;
  dense.mask = {shape.masked ? lengths : nullptr, shape.causal, shape.window};
  return dense;
}

/// o, and dq, dk, dv from d_o. The gradient of padding rows of d_o must be zero.
void attend_on_device(Gemm& gemm,
                      const DenseAttention& dense,
                      const SdpaShape& shape,
                      const DenseArrays& arrays) {
  const std::int64_t head_elements = dense.head_elements();
  const std::int64_t score_elements = dense.score_elements();
  const DeviceArray q_copy(shape.dtype, head_elements);
  const DeviceArray k_copy(shape.dtype, head_elements);
  const DeviceArray v_copy(shape.dtype, head_elements);
  const DeviceArray scratch(shape.dtype, 2 * head_elements);
  const DeviceArray p(shape.dtype, score_elements);
  const DeviceArray dp(shape.dtype, score_elements);
  const DenseCopies copies{q_copy.array(), k_copy.array(), v_copy.array(), scratch.array()};
  dense_scores_forward(stream(),
                       gemm,
                       dense,
                       p.array(),
                       copies,
                       {arrays.q.array(), shape.q_stride},
                       {arrays.k.array(), shape.kv_stride});
  dense_softmax_forward(stream(), dense, p.array());
  dense_context_forward(stream(),
                        gemm,
                        dense,
                        {arrays.o.array(), shape.o_stride},
                        copies,
                        p.array(),
                        {arrays.v.array(), shape.kv_stride});
  dense_context_backward(stream(),
                         gemm,
                         dense,
                         dp.array(),
                         copies,
                         {arrays.dv.array(), shape.kv_stride},
                         {arrays.d_o.array(), shape.o_stride},
                         p.array());
  dense_softmax_backward(stream(), dense, dp.array(), p.array());
  dense_scores_backward(stream(),
                        gemm,
                        dense,
                        dp.array(),
                        copies,
                        {arrays.dq.array(), shape.q_stride},
                        {arrays.dk.array(), shape.kv_stride});
}

/// No loss reads the padding: its gradient is zero.
void clear_padding(PlainAttention& problem) {
  for (std::size_t sample = 0; sample < problem.lengths.size(); ++sample) {
    const std::int64_t from = problem.offsets[sample] + problem.lengths[sample];
    for (std::int64_t i = from * problem.shape.o_stride;
         i < problem.offsets[sample + 1] * problem.shape.o_stride;
         ++i) {
      problem.d_o[i] = 0;
    }
  }
}

/// Roundings of a term, each relative to it: the score and the probability made of it, which is off
/// by the error of the exponent; a gradient dp, its sum with p, and the score's gradient; grouped
/// heads' partial sums; the result. fp32 adds those of the sums.
double factor_of(const SdpaShape& shape, const PlainResults& expected) {
  const double u = test::unit_roundoff(shape.dtype);
  const double sums =
      static_cast<double>(2 * shape.length + 2 * shape.head_dim) * test::kRoundoff32;
  return (expected.largest_score + 6) * u + sums;
}

void check(Gemm& gemm, SdpaShape kind) {
  PlainAttention problem = plain_attention(
      kind,
      {static_cast<std::int32_t>(kind.length), 1, static_cast<std::int32_t>(kind.length / 2)},
      6);
  clear_padding(problem);
  const SdpaShape& shape = problem.shape;
  const DenseArrays arrays(problem);
  const DeviceInts lengths(problem.lengths);
  const DenseAttention dense = dense_of(problem, lengths.data());
  attend_on_device(gemm, dense, shape, arrays);
  const PlainResults expected = attend(problem);
  const double factor = factor_of(shape, expected);
  const std::int64_t q_width = shape.heads * shape.head_dim;
  const std::int64_t kv_width = shape.kv_heads * shape.head_dim;
  const auto off = [&](const DeviceArray& array,
                       const std::vector<double>& values,
                       const std::vector<double>& sizes,
                       std::int64_t stride,
                       std::int64_t width) {
    return worst(problem, Compared::Useful, array.read(), 0, values, sizes, stride, width, factor);
  };
  const auto& sizes = expected.sizes;
  CHECK(off(arrays.o, expected.o, sizes.o, shape.o_stride, q_width) <= 1);
  CHECK(off(arrays.dq, expected.dq, sizes.dq, shape.q_stride, q_width) <= 1);
  CHECK(off(arrays.dk, expected.dk, sizes.dk, shape.kv_stride, kv_width) <= 1);
  CHECK(off(arrays.dv, expected.dv, sizes.dv, shape.kv_stride, kv_width) <= 1);
}

}  // namespace

TEST_CASE("unfused attention, forward and backward, of every kind") {
  Gemm gemm;
  for (const Dtype dtype : {Dtype::F32, Dtype::Bf16, Dtype::F16}) {
    for (const std::int64_t kv_heads : {4, 2, 1}) {
      for (int options = 0; options < 8; ++options) {
        SdpaShape kind{.dtype = dtype,
                       .samples = 3,
                       .length = 24,
                       .heads = 4,
                       .kv_heads = kv_heads,
                       .head_dim = 16};
        kind.causal = (options & 1) != 0;
        kind.masked = (options & 2) != 0;
        kind.window = (options & 4) != 0 ? 5 : 0;
        CAPTURE(name_of(dtype));
        CAPTURE(kv_heads);
        CAPTURE(options);
        check(gemm, kind);
      }
    }
  }
}

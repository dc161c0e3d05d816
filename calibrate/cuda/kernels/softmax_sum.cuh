#pragma once

#include "calibrate/cuda/kernels/device_code.cuh"

namespace stepsim::cuda {

/// The largest of some numbers x, and the sum of e^(x - largest). No numbers: (-infinity, 0).
struct SoftmaxSum {
  float top;
  float total;
};

/// Source: Milakov and Gimelshein 1805.02867, the sums of two sets together.
__device__ inline SoftmaxSum together(const SoftmaxSum& a, const SoftmaxSum& b) {
  const float top = fmaxf(a.top, b.top);
  if (top == -INFINITY) {
    return a;
  }
  return {top, a.total * expf(a.top - top) + b.total * expf(b.top - top)};
}

template <int N>
__device__ SoftmaxSum softmax_sum_of(const float (&values)[N]) {
  float top = values[0];
#pragma unroll
  for (int k = 1; k < N; ++k) {
    top = fmaxf(top, values[k]);
  }
  if (top == -INFINITY) {
    return {top, 0};
  }
  float total = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    total += expf(values[k] - top);
  }
  return {top, total};
}

}  // namespace stepsim::cuda

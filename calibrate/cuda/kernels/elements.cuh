#pragma once

#include "calibrate/cuda/kernels/pack.cuh"

/// Kernels over the elements of arrays, each by itself.
namespace stepsim::cuda {

constexpr int kElementThreads = 256;
/// Enough blocks to fill any card several times; more elements are a loop.
constexpr std::int64_t kElementBlocks = 132 * 32;

/// body.template at<N>(i) handles the elements [i, i + N).
template <int N, typename Body>
__global__ void __launch_bounds__(kElementThreads) each_element(Body body, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * N;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  std::int64_t i = first;
  for (; i + N <= count; i += step) {
    body.template at<N>(i);
  }
  if constexpr (N > 1) {
    for (; i < count; ++i) {  // The thread at the end has the last, incomplete pack.
      body.template at<1>(i);
    }
  }
}

/// Runs a body over `count` elements, N at a time when its arrays are `aligned` for that.
template <int N, typename Body>
void launch_elements(const Stream& stream, const Body& body, std::int64_t count, bool aligned) {
  const int n = aligned ? N : 1;
  const std::int64_t packs = (count + n - 1) / n;
  const std::int64_t blocks =
      std::min((packs + kElementThreads - 1) / kElementThreads, kElementBlocks);
  launch(aligned ? each_element<N, Body> : each_element<1, Body>,
         blocks,
         kElementThreads,
         stream,
         body,
         count);
}

}  // namespace stepsim::cuda

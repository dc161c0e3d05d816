#include <cmath>

#include "calibrate/cuda/eager/eager.h"
#include "calibrate/cuda/eager/map.cuh"

namespace stepsim::cuda {
namespace {

constexpr std::int64_t kChunk = 65536;
constexpr std::int64_t kChunksALaunch = 2240;
constexpr int kChunkThreads = 512;
constexpr int kElementsAtOnce = 4;

/// body.template at<N>(i) handles the elements [i, i + N) of the chunks [first, last).
template <int N, typename Body>
__global__ void __launch_bounds__(kChunkThreads)
    each_chunk(Body body, std::int64_t first, std::int64_t last, std::int64_t count) {
  for (std::int64_t chunk = first + blockIdx.x; chunk < last; chunk += gridDim.x) {
    const std::int64_t end = min((chunk + 1) * kChunk, count);
    std::int64_t i = chunk * kChunk + static_cast<std::int64_t>(threadIdx.x) * N;
    for (; i + N <= end; i += static_cast<std::int64_t>(blockDim.x) * N) {
      body.template at<N>(i);
    }
    if constexpr (N > 1) {
      for (; i < end; ++i) {  // The thread at the end has the last, incomplete pack.
        body.template at<1>(i);
      }
    }
  }
}

template <typename Body>
void foreach_chunk(const Stream& stream, const Body& body, std::int64_t count, bool is_aligned) {
  const std::int64_t chunks = (count + kChunk - 1) / kChunk;
  for (std::int64_t first = 0; first < chunks; first += kChunksALaunch) {
    const std::int64_t last = std::min(first + kChunksALaunch, chunks);
    launch(is_aligned ? each_chunk<kElementsAtOnce, Body> : each_chunk<1, Body>,
           last - first,
           kChunkThreads,
           stream,
           body,
           first,
           last,
           count);
  }
}

/// x += (y - x) * weight.
struct Lerp {
  float weight;
  __device__ float operator()(float x, float y) const { return x + weight * (y - x); }
};
struct Root {
  __device__ float operator()(float x) const { return sqrtf(x); }
};
struct OverConstant {
  float divisor;
  __device__ float operator()(float x) const { return x / divisor; }
};

/// x = x + factor * y * z, or x + factor * y / z.
template <typename T, bool kDivides>
struct AddProduct {
  T* x;
  const T* y;
  const T* z;
  float factor;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float sums[N];
    float ys[N];
    float zs[N];
    load<N>(sums, x + i);
    load<N>(ys, y + i);
    load<N>(zs, z + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sums[k] += kDivides ? factor * (ys[k] / zs[k]) : factor * ys[k] * zs[k];
    }
    store<N>(x + i, sums);
  }
};

}  // namespace

std::int64_t foreach_adamw_launches(std::int64_t count) {
  constexpr std::int64_t kOperations = 8;
  constexpr std::int64_t kElementsALaunch = kChunk * kChunksALaunch;
  return kOperations * ((count + kElementsALaunch - 1) / kElementsALaunch);
}

void foreach_adamw(const Stream& stream,
                   const AdamW& options,
                   Array weights,
                   Array m,
                   Array v,
                   ConstArray gradient,
                   Array root,
                   std::int64_t count,
                   std::int64_t step) {
  expect_dtype(weights.dtype, m, v, gradient, root);
  const auto steps = static_cast<double>(step);
  const double correction1 = 1.0 - std::pow(static_cast<double>(options.beta1), steps);
  const double correction2 = 1.0 - std::pow(static_cast<double>(options.beta2), steps);
  const auto rate = static_cast<float>(static_cast<double>(options.learning_rate) / correction1);
  const auto deviation = static_cast<float>(std::sqrt(correction2));
  with_type(weights.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    T* const w = data_of<T>(weights);
    T* const first = data_of<T>(m);
    T* const second = data_of<T>(v);
    T* const r = data_of<T>(root);
    const T* const g = data_of<T>(gradient);
    const bool is_aligned = aligned(kElementsAtOnce, w, first, second, r, g);
    const auto run = [&](const auto& body) { foreach_chunk(stream, body, count, is_aligned); };
    const auto apply = [&](T* x, const T* from, auto f) {
      run(Map1<T, T, decltype(f)>{x, from, f});
    };
    apply(w, w, TimesConstant{1.0F - options.learning_rate * options.weight_decay});
    run(Map2<T, T, T, Lerp>{first, first, g, Lerp{1.0F - options.beta1}});
    apply(second, second, TimesConstant{options.beta2});
    run(AddProduct<T, false>{second, g, g, 1.0F - options.beta2});
    apply(r, second, Root{});
    apply(r, r, OverConstant{deviation});
    apply(r, r, PlusConstant{options.epsilon});
    run(AddProduct<T, true>{w, first, r, -rate});
  });
}

}  // namespace stepsim::cuda

#pragma once

#include "calibrate/cuda/kernels/elements.cuh"

/// One operation of eager PyTorch on the elements of arrays: what it reads and writes goes through
/// memory, and it computes in fp32.
namespace stepsim::cuda {

/// out[i] = f(a[i]).
template <typename Out, typename A, typename F>
struct Map1 {
  Out* out;
  const A* a;
  F f;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float x[N];
    load<N>(x, a + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x[k] = f(x[k]);
    }
    store<N>(out + i, x);
  }
};

/// out[i] = f(a[i], b[i]).
template <typename Out, typename A, typename B, typename F>
struct Map2 {
  Out* out;
  const A* a;
  const B* b;
  F f;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float x[N];
    float y[N];
    load<N>(x, a + i);
    load<N>(y, b + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x[k] = f(x[k], y[k]);
    }
    store<N>(out + i, x);
  }
};

template <typename Out, typename A, typename F>
void map(const Stream& stream, Out* out, const A* a, std::int64_t count, F f) {
  constexpr int kN = kPack<Out, A>;
  launch_elements<kN>(stream, Map1<Out, A, F>{out, a, f}, count, aligned(kN, out, a));
}

template <typename Out, typename A, typename B, typename F>
void map(const Stream& stream, Out* out, const A* a, const B* b, std::int64_t count, F f) {
  constexpr int kN = kPack<Out, A, B>;
  launch_elements<kN>(stream, Map2<Out, A, B, F>{out, a, b, f}, count, aligned(kN, out, a, b));
}

// What the operations compute.
struct Copied {
  __device__ float operator()(float x) const { return x; }
};
struct TimesConstant {
  float factor;
  __device__ float operator()(float x) const { return factor * x; }
};
struct PlusConstant {
  float term;
  __device__ float operator()(float x) const { return x + term; }
};
struct Squared {
  __device__ float operator()(float x) const { return x * x; }
};
struct Cubed {
  __device__ float operator()(float x) const { return x * x * x; }
};
struct Plus {
  __device__ float operator()(float x, float y) const { return x + y; }
};
struct Times {
  __device__ float operator()(float x, float y) const { return x * y; }
};

}  // namespace stepsim::cuda

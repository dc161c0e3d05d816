#include "calibrate/cuda/kernels/elements.cuh"
#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {
namespace {

template <typename T, typename A>
struct Sum {
  T* out;
  const A* a;
  const T* b;
  const T* c;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float sum[N];
    float term[N];
    load<N>(sum, a + i);
    load<N>(term, b + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      sum[k] += term[k];
    }
    if (c != nullptr) {
      load<N>(term, c + i);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sum[k] += term[k];
      }
    }
    store<N>(out + i, sum);
  }
};

template <typename Out, typename T>
struct Scaled {
  Out* out;
  const T* a;
  float factor;
  bool add;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N];
    float before[N] = {};
    load<N>(values, a + i);
    if (add) {
      load<N>(before, out + i);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = factor * values[k] + before[k];
    }
    store<N>(out + i, values);
  }
};

}  // namespace

void add_elements(
    const Stream& stream, Array out, ConstArray a, ConstArray b, ConstArray c, std::int64_t count) {
  expect_dtype(out.dtype, b, c);
  with_type(out.dtype, [&](auto type) {
    with_type(a.dtype, [&](auto first_type) {
      using T = typename decltype(type)::Type;
      using A = typename decltype(first_type)::Type;
      constexpr int kN = kPack<T, A>;
      const Sum<T, A> body{data_of<T>(out), data_of<A>(a), data_of<T>(b), data_of<T>(c)};
      launch_elements<kN>(stream, body, count, aligned(kN, body.out, body.a, body.b, body.c));
    });
  });
}

void scaled_copy(
    const Stream& stream, Array out, ConstArray a, float factor, std::int64_t count, Store store) {
  with_type(out.dtype, [&](auto out_type) {
    with_type(a.dtype, [&](auto type) {
      using Out = typename decltype(out_type)::Type;
      using T = typename decltype(type)::Type;
      constexpr int kN = kPack<Out, T>;
      const Scaled<Out, T> body{data_of<Out>(out), data_of<T>(a), factor, store == Store::Add};
      launch_elements<kN>(stream, body, count, aligned(kN, body.out, body.a));
    });
  });
}

}  // namespace stepsim::cuda

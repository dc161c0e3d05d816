#include "calibrate/cuda/kernels/elements.cuh"
#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/kernels/random.cuh"

namespace stepsim::cuda {
namespace {

template <typename T>
struct Sum {
  T* out;
  const T* a;
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

/// Two elements share 64 random bits.
template <typename T>
struct Dropout {
  T* out;
  const T* x;
  std::uint32_t dropped;  ///< Elements whose 32 bits are below this.
  float factor;
  std::uint64_t seed;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N];
    load<N>(values, x + i);
    std::uint64_t bits = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (k % 2 == 0) {
        bits = random_bits(seed, (i + k) / 2);
      }
      const bool upper = N == 1 ? i % 2 != 0 : k % 2 != 0;
      const auto mine = static_cast<std::uint32_t>(upper ? bits >> 32 : bits);
      values[k] = mine < dropped ? 0.0F : values[k] * factor;
    }
    store<N>(out + i, values);
  }
};

}  // namespace

void add_elements(
    const Stream& stream, Array out, ConstArray a, ConstArray b, ConstArray c, std::int64_t count) {
  expect_dtype(out.dtype, a, b, c);
  with_type(out.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    const Sum<T> body{data_of<T>(out), data_of<T>(a), data_of<T>(b), data_of<T>(c)};
    launch_elements<kN>(stream, body, count, aligned(kN, body.out, body.a, body.b, body.c));
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

void dropout(const Stream& stream,
             Array out,
             ConstArray x,
             float p,
             std::uint64_t seed,
             std::int64_t count) {
  if (!(p >= 0 && p < 1)) {
    throw InputError("a dropout probability lies in [0, 1), not " + std::to_string(p));
  }
  expect_dtype(x.dtype, out);
  const auto dropped = static_cast<std::uint32_t>(static_cast<double>(p) * 0x1p32);
  with_type(x.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    const Dropout<T> body{data_of<T>(out), data_of<T>(x), dropped, 1.0F / (1.0F - p), seed};
    launch_elements<kN>(stream, body, count, aligned(kN, body.out, body.x));
  });
}

}  // namespace stepsim::cuda

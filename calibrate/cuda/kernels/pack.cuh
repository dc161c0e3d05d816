#pragma once

#include <cstdint>
#include <type_traits>

#include "calibrate/cuda/kernels/device_code.cuh"
#include "costmodel/base/input_error.h"

/// Elements of an array read and written several at a time, computed on in fp32.
namespace stepsim::cuda {

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float to_float(__half x) {
  return __half2float(x);
}

template <typename T>
__device__ T from_float(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

/// Elements that move in one instruction of up to 16 bytes.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T of[N];
};

/// Elements of the widest type that fill 16 bytes.
template <typename... T>
constexpr int kPack = 16 / static_cast<int>(std::max({sizeof(T)...}));

/// N elements from `from` on, which is aligned to their size.
template <int N, typename T>
__device__ void load(float (&to)[N], const T* from) {
  check_aligned(from, sizeof(Pack<T, N>));
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    to[i] = to_float(pack.of[i]);
  }
}

template <int N, typename T>
__device__ void store(T* to, const float (&from)[N]) {
  check_aligned(to, sizeof(Pack<T, N>));
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    pack.of[i] = from_float<T>(from[i]);
  }
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Whether packs of `n` elements can start at every one of these arrays; null is no array.
template <typename... T>
bool aligned(int n, const T*... arrays) {
  const auto fits = [n](const void* data, std::size_t size) {
    return reinterpret_cast<std::uintptr_t>(data) % (size * static_cast<std::size_t>(n)) == 0;
  };
  return (fits(arrays, sizeof(T)) && ...);
}

/// A type as a value.
template <typename T>
struct TypeIs {
  using Type = T;
};

/// Calls body(TypeIs<T>) with the type of `dtype`. Raises InputError for one that no kernel has.
template <typename Body>
void with_type(Dtype dtype, const Body& body) {
  switch (dtype) {
    case Dtype::F32:
    case Dtype::Tf32:
      return body(TypeIs<float>{});
    case Dtype::Bf16:
      return body(TypeIs<__nv_bfloat16>{});
    case Dtype::F16:
      return body(TypeIs<__half>{});
    case Dtype::F64:
      break;
  }
  throw InputError("the CUDA kernels take f32, bf16 and f16, not " + std::string(name_of(dtype)));
}

template <typename T>
T* data_of(const Array& array) {
  return static_cast<T*>(array.data);
}
template <typename T>
const T* data_of(const ConstArray& array) {
  return static_cast<const T*>(array.data);
}

}  // namespace stepsim::cuda

#include "tests/gpu/test_kernels.h"

#include "calibrate/cuda/kernels/elements.cuh"
#include "calibrate/cuda/kernels/random.cuh"
#include "costmodel/base/input_error.h"

namespace stepsim::cuda {
namespace {

constexpr int kFlushThreads = 512;

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

__global__ void __launch_bounds__(kFlushThreads) touch(uint4* data, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    uint4 value = data[i];
    value.x += 1;
    data[i] = value;
  }
}

}  // namespace

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

void flush_cache(const Stream& stream, void* buffer, std::int64_t bytes) {
  const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(uint4));
  const std::int64_t blocks = (count + kFlushThreads - 1) / kFlushThreads;
  launch(touch,
         std::min<std::int64_t>(blocks, 132 * 16),
         kFlushThreads,
         stream,
         static_cast<uint4*>(buffer),
         count);
}

}  // namespace stepsim::cuda

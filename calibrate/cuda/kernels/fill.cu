#include "calibrate/cuda/kernels/elements.cuh"
#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/kernels/random.cuh"

namespace stepsim::cuda {
namespace {

template <typename T>
struct Normal {
  T* out;
  float deviation;
  std::uint64_t seed;

  template <int N>
  __device__ void at(std::int64_t i) const {
    constexpr float kTwoPi = 6.2831853071795865F;
    float values[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const std::uint64_t bits = random_bits(seed, i + k);
      // Source: Box and Muller 1958; the radius of a uniform number that is not 0.
      const float u = uniform_of(static_cast<std::uint32_t>(bits >> 32)) + 0x1p-25F;
      const float angle = kTwoPi * uniform_of(static_cast<std::uint32_t>(bits));
      values[k] = deviation * sqrtf(-2.0F * logf(u)) * cosf(angle);
    }
    store<N>(out + i, values);
  }
};

}  // namespace

void fill_normal(
    const Stream& stream, Array out, std::int64_t count, float deviation, std::uint64_t seed) {
  with_type(out.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    T* data = data_of<T>(out);
    launch_elements<kN>(stream, Normal<T>{data, deviation, seed}, count, aligned(kN, data));
  });
}

}  // namespace stepsim::cuda

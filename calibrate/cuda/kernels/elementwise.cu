#include "calibrate/cuda/kernels/elements.cuh"
#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {
namespace {

template <typename Out, typename T>
struct Scaled {
  Out* out;
  const T* a;
  float factor;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N];
    load<N>(values, a + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] *= factor;
    }
    store<N>(out + i, values);
  }
};

}  // namespace

void scaled_copy(const Stream& stream, Array out, ConstArray a, float factor, std::int64_t count) {
  with_type(out.dtype, [&](auto out_type) {
    with_type(a.dtype, [&](auto type) {
      using Out = typename decltype(out_type)::Type;
      using T = typename decltype(type)::Type;
      constexpr int kN = kPack<Out, T>;
      const Scaled<Out, T> body{data_of<Out>(out), data_of<T>(a), factor};
      launch_elements<kN>(stream, body, count, aligned(kN, body.out, body.a));
    });
  });
}

}  // namespace stepsim::cuda

#include <cmath>

#include "calibrate/cuda/kernels/elements.cuh"
#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {
namespace {

/// The options of one step, as the kernel uses them.
struct Step {
  float keep;  ///< 1 - learning rate * weight decay.
  float rate;  ///< Learning rate / (1 - beta1^step).
  float root;  ///< 1 / sqrt(1 - beta2^step).
  float beta1;
  float beta2;
  float epsilon;
};

Step step_of(const AdamW& options, std::int64_t step) {
  const auto steps = static_cast<double>(step);
  const double correction1 = 1.0 - std::pow(static_cast<double>(options.beta1), steps);
  const double correction2 = 1.0 - std::pow(static_cast<double>(options.beta2), steps);
  return {1.0F - options.learning_rate * options.weight_decay,
          static_cast<float>(static_cast<double>(options.learning_rate) / correction1),
          static_cast<float>(1.0 / std::sqrt(correction2)),
          options.beta1,
          options.beta2,
          options.epsilon};
}

template <typename T, typename Copy>
struct Update {
  Step step;
  T* weights;
  T* m;
  T* v;
  const T* gradient;
  Copy* copy;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float w[N];
    float first[N];
    float second[N];
    float g[N];
    load<N>(w, weights + i);
    load<N>(first, m + i);
    load<N>(second, v + i);
    load<N>(g, gradient + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      first[k] = step.beta1 * first[k] + (1.0F - step.beta1) * g[k];
      second[k] = step.beta2 * second[k] + (1.0F - step.beta2) * g[k] * g[k];
      const float deviation = sqrtf(second[k]) * step.root + step.epsilon;
      w[k] = step.keep * w[k] - step.rate * first[k] / deviation;
    }
    store<N>(weights + i, w);
    store<N>(m + i, first);
    store<N>(v + i, second);
    if (copy != nullptr) {
      store<N>(copy + i, w);
    }
  }
};

}  // namespace

void adamw_update(const Stream& stream,
                  const AdamW& options,
                  Array weights,
                  Array m,
                  Array v,
                  ConstArray gradient,
                  Array copy,
                  std::int64_t count,
                  std::int64_t step) {
  expect_dtype(weights.dtype, m, v, gradient);
  with_type(weights.dtype, [&](auto type) {
    with_type(copy.data == nullptr ? weights.dtype : copy.dtype, [&](auto copy_type) {
      using T = typename decltype(type)::Type;
      using Copy = typename decltype(copy_type)::Type;
      constexpr int kN = kPack<T, Copy>;
      const Update<T, Copy> body{step_of(options, step),
                                 data_of<T>(weights),
                                 data_of<T>(m),
                                 data_of<T>(v),
                                 data_of<T>(gradient),
                                 data_of<Copy>(copy)};
      launch_elements<kN>(
          stream, body, count, aligned(kN, body.weights, body.m, body.v, body.gradient, body.copy));
    });
  });
}

}  // namespace stepsim::cuda

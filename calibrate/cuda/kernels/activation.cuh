#pragma once

#include "calibrate/cuda/kernels/device_code.cuh"

/// Values and slopes of the activations, in fp32.
namespace stepsim::cuda {

/// x Phi(x), Phi the normal distribution.
struct GeluErf {
  static __device__ float below(float x) { return 0.5F * (1.0F + erff(x * 0.70710678118654752F)); }
  static __device__ float value(float x) { return x * below(x); }
  static __device__ float slope(float x) {
    const float density = 0.39894228040143268F * expf(-0.5F * x * x);
    return below(x) + x * density;
  }
};

/// 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh {
  static constexpr float kRootTwoOverPi = 0.79788456080286536F;
  static constexpr float kCubic = 0.044715F;
  static __device__ float inner(float x) {
    return tanhf(kRootTwoOverPi * (x + kCubic * x * x * x));
  }
  static __device__ float value(float x) { return 0.5F * x * (1.0F + inner(x)); }
  static __device__ float slope(float x) {
    const float t = inner(x);
    const float du = kRootTwoOverPi * (1.0F + 3.0F * kCubic * x * x);
    return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * du;
  }
};

struct ReluSquared {
  static __device__ float value(float x) { return x > 0 ? x * x : 0.0F; }
  static __device__ float slope(float x) { return x > 0 ? 2.0F * x : 0.0F; }
};

struct Tanh {
  static __device__ float value(float x) { return tanhf(x); }
  static __device__ float slope(float x) {
    const float y = tanhf(x);
    return 1.0F - y * y;
  }
};

struct Relu {
  static __device__ float value(float x) { return x > 0 ? x : 0.0F; }
  static __device__ float slope(float x) { return x > 0 ? 1.0F : 0.0F; }
};

__device__ inline float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

}  // namespace stepsim::cuda

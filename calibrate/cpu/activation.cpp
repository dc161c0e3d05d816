#include "calibrate/cpu/activation.h"

#include "calibrate/cpu/vector_math.h"

namespace stepsim::cpu {
namespace {

/// Standard normal density and distribution at x.
/// Source of the tail: Abramowitz and Stegun 7.1.26 for erf, |error| <= 1.5e-7.
struct Normal {
  float density;
  float below;
};

inline Normal normal(float x) {
  const float z = (x < 0 ? -x : x) * 0.70710678118654752F;
  const float e = exp_of(-z * z);
  const float t = 1.0F / (1.0F + 0.3275911F * z);
  float p = 1.061405429F;
  p = p * t - 1.453152027F;
  p = p * t + 1.421413741F;
  p = p * t - 0.284496736F;
  p = p * t + 0.254829592F;
  const float tail = 0.5F * p * t * e;
  return {0.39894228040143268F * e, x < 0 ? tail : 1.0F - tail};
}

constexpr float kTwiceRootTwoOverPi = 1.5957691216057308F;
constexpr float kCubic = 0.044715F;

struct GeluErf {
  static float value(float x) { return x * normal(x).below; }
  static float slope(float x) {
    const Normal n = normal(x);
    return n.below + x * n.density;
  }
};

/// 0.5 x (1 + tanh(u)) is x sigmoid(2 u).
struct GeluTanh {
  static float value(float x) {
    return x * sigmoid(kTwiceRootTwoOverPi * (x + kCubic * x * x * x));
  }
  static float slope(float x) {
    const float s = sigmoid(kTwiceRootTwoOverPi * (x + kCubic * x * x * x));
    return s + x * s * (1.0F - s) * kTwiceRootTwoOverPi * (1.0F + 3.0F * kCubic * x * x);
  }
};

struct ReluSquared {
  static float value(float x) { return x > 0 ? x * x : 0.0F; }
  static float slope(float x) { return x > 0 ? 2.0F * x : 0.0F; }
};

struct Tanh {
  static float value(float x) { return 2.0F * sigmoid(2.0F * x) - 1.0F; }
  static float slope(float x) {
    const float y = value(x);
    return 1.0F - y * y;
  }
};

struct Relu {
  static float value(float x) { return x > 0 ? x : 0.0F; }
  static float slope(float x) { return x > 0 ? 1.0F : 0.0F; }
};

template <typename F>
void forward(float* __restrict y, const float* __restrict x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = F::value(x[i]);
  }
}

template <typename F>
void backward(float* __restrict dx,
              const float* __restrict dy,
              const float* __restrict x,
              std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    dx[i] = dy[i] * F::slope(x[i]);
  }
}

}  // namespace

void activation_forward(
    const Stream& /*stream*/, ActivationKind kind, float* y, const float* x, std::int64_t count) {
  switch (kind) {
    case ActivationKind::GeluErf:
      return forward<GeluErf>(y, x, count);
    case ActivationKind::GeluTanh:
      return forward<GeluTanh>(y, x, count);
    case ActivationKind::ReluSquared:
      return forward<ReluSquared>(y, x, count);
    case ActivationKind::Tanh:
      return forward<Tanh>(y, x, count);
    case ActivationKind::Relu:
      return forward<Relu>(y, x, count);
  }
}

void activation_backward(const Stream& /*stream*/,
                         ActivationKind kind,
                         float* dx,
                         const float* dy,
                         const float* x,
                         std::int64_t count) {
  switch (kind) {
    case ActivationKind::GeluErf:
      return backward<GeluErf>(dx, dy, x, count);
    case ActivationKind::GeluTanh:
      return backward<GeluTanh>(dx, dy, x, count);
    case ActivationKind::ReluSquared:
      return backward<ReluSquared>(dx, dy, x, count);
    case ActivationKind::Tanh:
      return backward<Tanh>(dx, dy, x, count);
    case ActivationKind::Relu:
      return backward<Relu>(dx, dy, x, count);
  }
}

void swiglu_forward(const Stream& /*stream*/,
                    float* __restrict y,
                    const float* __restrict gate,
                    const float* __restrict up,
                    std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = gate[i] * sigmoid(gate[i]) * up[i];
  }
}

void swiglu_backward(const Stream& /*stream*/,
                     float* __restrict dgate,
                     float* __restrict dup,
                     const float* __restrict dy,
                     const float* __restrict gate,
                     const float* __restrict up,
                     std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float s = sigmoid(gate[i]);
    dgate[i] = dy[i] * up[i] * s * (1.0F + gate[i] * (1.0F - s));
    dup[i] = dy[i] * gate[i] * s;
  }
}

}  // namespace stepsim::cpu

#include "calibrate/cuda/kernels/activation.cuh"

#include "calibrate/cuda/kernels/elements.cuh"
#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {
namespace {

template <typename F, typename T>
struct Forward {
  T* y;
  const T* x;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N];
    load<N>(values, x + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = F::value(values[k]);
    }
    store<N>(y + i, values);
  }
};

template <typename F, typename T>
struct Backward {
  T* dx;
  const T* dy;
  const T* x;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float inputs[N];
    float gradients[N];
    load<N>(inputs, x + i);
    load<N>(gradients, dy + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      gradients[k] *= F::slope(inputs[k]);
    }
    store<N>(dx + i, gradients);
  }
};

template <typename T>
struct SwigluForward {
  T* y;
  const T* gate;
  const T* up;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float g[N];
    float u[N];
    load<N>(g, gate + i);
    load<N>(u, up + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      u[k] *= g[k] * sigmoid(g[k]);
    }
    store<N>(y + i, u);
  }
};

template <typename T>
struct SwigluBackward {
  T* dgate;
  T* dup;
  const T* dy;
  const T* gate;
  const T* up;

  template <int N>
  __device__ void at(std::int64_t i) const {
    float d[N];
    float g[N];
    float u[N];
    load<N>(d, dy + i);
    load<N>(g, gate + i);
    load<N>(u, up + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float s = sigmoid(g[k]);
      u[k] *= d[k] * s * (1.0F + g[k] * (1.0F - s));
      g[k] *= d[k] * s;
    }
    store<N>(dgate + i, u);
    store<N>(dup + i, g);
  }
};

/// Calls body(TypeIs<F>) with the function of `kind`.
template <typename Body>
void with_activation(ActivationKind kind, const Body& body) {
  switch (kind) {
    case ActivationKind::GeluErf:
      return body(TypeIs<GeluErf>{});
    case ActivationKind::GeluTanh:
      return body(TypeIs<GeluTanh>{});
    case ActivationKind::ReluSquared:
      return body(TypeIs<ReluSquared>{});
    case ActivationKind::Tanh:
      return body(TypeIs<Tanh>{});
    case ActivationKind::Relu:
      return body(TypeIs<Relu>{});
  }
}

}  // namespace

void activation_forward(
    const Stream& stream, ActivationKind kind, Array y, ConstArray x, std::int64_t count) {
  expect_dtype(x.dtype, y);
  with_activation(kind, [&](auto function) {
    with_type(x.dtype, [&](auto type) {
      using F = typename decltype(function)::Type;
      using T = typename decltype(type)::Type;
      constexpr int kN = kPack<T>;
      const Forward<F, T> body{data_of<T>(y), data_of<T>(x)};
      launch_elements<kN>(stream, body, count, aligned(kN, body.y, body.x));
    });
  });
}

void activation_backward(const Stream& stream,
                         ActivationKind kind,
                         Array dx,
                         ConstArray dy,
                         ConstArray x,
                         std::int64_t count) {
  expect_dtype(x.dtype, dx, dy);
  with_activation(kind, [&](auto function) {
    with_type(x.dtype, [&](auto type) {
      using F = typename decltype(function)::Type;
      using T = typename decltype(type)::Type;
      constexpr int kN = kPack<T>;
      const Backward<F, T> body{data_of<T>(dx), data_of<T>(dy), data_of<T>(x)};
      launch_elements<kN>(stream, body, count, aligned(kN, body.dx, body.dy, body.x));
    });
  });
}

void swiglu_forward(
    const Stream& stream, Array y, ConstArray gate, ConstArray up, std::int64_t count) {
  expect_dtype(gate.dtype, y, up);
  with_type(gate.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    const SwigluForward<T> body{data_of<T>(y), data_of<T>(gate), data_of<T>(up)};
    launch_elements<kN>(stream, body, count, aligned(kN, body.y, body.gate, body.up));
  });
}

void swiglu_backward(const Stream& stream,
                     Array dgate,
                     Array dup,
                     ConstArray dy,
                     ConstArray gate,
                     ConstArray up,
                     std::int64_t count) {
  expect_dtype(gate.dtype, dgate, dup, dy, up);
  with_type(gate.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int kN = kPack<T>;
    const SwigluBackward<T> body{
        data_of<T>(dgate), data_of<T>(dup), data_of<T>(dy), data_of<T>(gate), data_of<T>(up)};
    launch_elements<kN>(
        stream, body, count, aligned(kN, body.dgate, body.dup, body.dy, body.gate, body.up));
  });
}

}  // namespace stepsim::cuda

#include "calibrate/cuda/eager/eager.h"
#include "calibrate/cuda/eager/map.cuh"

namespace stepsim::cuda {
namespace {

constexpr float kRootTwoOverPi = 0.79788456080286536F;
constexpr float kCubic = 0.044715F;

struct Tanhed {
  __device__ float operator()(float x) const { return tanhf(x); }
};
/// The gradient before tanh of the one after it, where tanh was t.
struct TanhSlope {
  __device__ float operator()(float d, float t) const { return d * (1.0F - t * t); }
};

/// What the forward keeps, as PyTorch's autograd does. The wide arrays come first, so that all
/// start at a multiple of their element's size.
template <typename T, typename W>
struct Kept {
  static constexpr bool kCasts = !std::is_same_v<T, W>;

  W* tanh;
  W* sum;   ///< 1 + tanh.
  W* wide;  ///< x in W, where that is another type.
  T* half;  ///< x / 2.

  Kept(void* saved, std::int64_t count)
      : tanh(static_cast<W*>(saved)),
        sum(tanh + count),
        wide(sum + count),
        half(reinterpret_cast<T*>(kCasts ? wide + count : wide)) {}
};

template <typename T, typename W>
void run_forward(
    const Stream& stream, W* y, void* saved, float* scratch, const T* x, std::int64_t count) {
  const Kept<T, W> kept(saved, count);
  W* const a = reinterpret_cast<W*>(scratch);
  W* const b = a + count;
  map(stream, kept.half, x, count, TimesConstant{0.5F});
  if constexpr (Kept<T, W>::kCasts) {
    map(stream, kept.wide, x, count, Copied{});
    map(stream, a, kept.wide, count, Cubed{});
  } else {
    map(stream, a, x, count, Cubed{});
  }
  map(stream, b, a, count, TimesConstant{kCubic});
  map(stream, a, x, b, count, Plus{});
  map(stream, b, a, count, TimesConstant{kRootTwoOverPi});
  map(stream, kept.tanh, b, count, Tanhed{});
  map(stream, kept.sum, kept.tanh, count, PlusConstant{1.0F});
  map(stream, y, kept.half, kept.sum, count, Times{});
}

/// A gradient in the type of x; its cast goes to `to` where it has another one.
template <typename T, typename W>
const T* narrowed(const Stream& stream, T* to, const W* gradient, std::int64_t count) {
  if constexpr (std::is_same_v<T, W>) {
    return gradient;
  } else {
    map(stream, to, gradient, count, Copied{});
    return to;
  }
}

template <typename T, typename W>
void run_backward(const Stream& stream,
                  T* dx,
                  const W* dy,
                  const T* x,
                  const float* saved,
                  float* scratch,
                  std::int64_t count) {
  const Kept<T, W> kept(const_cast<float*>(saved), count);
  W* const a = reinterpret_cast<W*>(scratch);
  W* const b = a + count;
  W* const c = b + count;
  W* const d = c + count;
  T* const of_half = reinterpret_cast<T*>(d + count);
  T* const of_sum = of_half + count;
  T* const narrow = of_sum + count;
  // The product of x / 2 and 1 + tanh.
  map(stream, a, dy, kept.sum, count, Times{});
  map(stream, b, dy, kept.half, count, Times{});
  map(stream, of_half, narrowed(stream, narrow, a, count), count, TimesConstant{0.5F});
  // tanh and its argument, a sum.
  map(stream, a, b, kept.tanh, count, TanhSlope{});
  map(stream, b, a, count, TimesConstant{kRootTwoOverPi});
  const T* const direct = narrowed(stream, narrow, b, count);
  map(stream, of_sum, of_half, direct, count, Plus{});
  // The cube.
  map(stream, a, b, count, TimesConstant{kCubic});
  if constexpr (Kept<T, W>::kCasts) {
    map(stream, c, kept.wide, count, Squared{});
  } else {
    map(stream, c, x, count, Squared{});
  }
  map(stream, d, c, count, TimesConstant{3.0F});
  map(stream, c, a, d, count, Times{});
  map(stream, dx, of_sum, narrowed(stream, narrow, c, count), count, Plus{});
}

/// Calls body(TypeIs<T>, TypeIs<W>) with the type of x and that of the result, which is the same or
/// float.
template <typename Body>
void with_types(Dtype x, Dtype result, const Body& body) {
  with_type(x, [&](auto type) {
    using T = typename decltype(type)::Type;
    if (stored_as(result) == Dtype::F32) {
      return body(type, TypeIs<float>{});
    }
    if (result != x) {
      throw InputError("the arrays of a CUDA kernel differ in dtype");
    }
    body(type, TypeIs<T>{});
  });
}

}  // namespace

std::int64_t gelu_new_saved(Dtype x, Dtype result, std::int64_t width) {
  const bool casts = stored_as(x) != stored_as(result);
  const std::int64_t bytes = (casts ? 3 : 2) * element_size(result) + element_size(x);
  return (bytes * width + 3) / 4;
}

std::int64_t gelu_new_scratch(std::int64_t count) {
  return 7 * count;  // Four wide arrays and three of x's dtype, all of 4 bytes at most.
}

void gelu_new_forward(
    const Stream& stream, Array y, float* saved, float* scratch, ConstArray x, std::int64_t count) {
  with_types(x.dtype, y.dtype, [&](auto type, auto result) {
    using T = typename decltype(type)::Type;
    using W = typename decltype(result)::Type;
    run_forward(stream, data_of<W>(y), saved, scratch, data_of<T>(x), count);
  });
}

void gelu_new_backward(const Stream& stream,
                       Array dx,
                       ConstArray dy,
                       ConstArray x,
                       const float* saved,
                       float* scratch,
                       std::int64_t count) {
  expect_dtype(x.dtype, dx);
  with_types(x.dtype, dy.dtype, [&](auto type, auto result) {
    using T = typename decltype(type)::Type;
    using W = typename decltype(result)::Type;
    run_backward(stream, data_of<T>(dx), data_of<W>(dy), data_of<T>(x), saved, scratch, count);
  });
}

}  // namespace stepsim::cuda

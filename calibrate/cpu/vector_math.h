#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

/// Short vector loops for the kernels. Compilers vectorise elementwise loops by themselves, but not
/// sums (that changes the order of additions), so those are written with vector types.
namespace stepsim::cpu {

constexpr int kLanes = 16;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

/// e^x, relative error 2e-7; exactly 0 below -87, so that no denormal numbers appear.
///
/// Source: the polynomial of Cephes' expf on |r| <= ln 2 / 2, after x = n ln 2 + r.
inline float exp_of(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number.
  const float low = x < -87.0F ? -87.0F : x;
  const float clamped = low > 88.0F ? 88.0F : low;
  const float n = (clamped * 1.44269504088896341F + kRound) - kRound;
  const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float y = p * r * r + r + 1.0F;
  const auto bits = (static_cast<std::int32_t>(n) + 127) << 23;
  const float scaled = y * std::bit_cast<float>(bits);
  return x < -87.0F ? 0.0F : scaled;
}

inline float sigmoid(float x) {
  return 1.0F / (1.0F + exp_of(-x));
}

/// Sum of term(i) for i in [0, n): `lanes(i)` gives 16 terms from i on, `one(i)` a single one.
template <typename LanesOf, typename OneOf>
float sum_of(std::int64_t n, const LanesOf& lanes, const OneOf& one) {
  Lanes sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Lanes terms;
    lanes(i, terms);
    sums += terms;
  }
  float total = 0;
  for (; i < n; ++i) {
    total += one(i);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    total += sums[lane];
  }
  return total;
}

inline void load(const float* from, Lanes& to) {
  std::memcpy(&to, from, sizeof(Lanes));
}

inline float sum(const float* x, std::int64_t n) {
  return sum_of(
      n, [x](std::int64_t i, Lanes& v) { load(x + i, v); }, [x](std::int64_t i) { return x[i]; });
}

inline float dot(const float* x, const float* y, std::int64_t n) {
  return sum_of(
      n,
      [x, y](std::int64_t i, Lanes& v) {
        Lanes other;
        load(x + i, v);
        load(y + i, other);
        v *= other;
      },
      [x, y](std::int64_t i) { return x[i] * y[i]; });
}

/// Sum of (x - center)^2.
inline float squares(const float* x, float center, std::int64_t n) {
  return sum_of(
      n,
      [x, center](std::int64_t i, Lanes& v) {
        load(x + i, v);
        v -= center;
        v *= v;
      },
      [x, center](std::int64_t i) { return (x[i] - center) * (x[i] - center); });
}

inline float largest(const float* x, std::int64_t n) {
  Lanes best = Lanes{} + x[0];
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Lanes v;
    load(x + i, v);
    best = v > best ? v : best;
  }
  float result = x[0];
  for (; i < n; ++i) {
    result = x[i] > result ? x[i] : result;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    result = best[lane] > result ? best[lane] : result;
  }
  return result;
}

}  // namespace stepsim::cpu

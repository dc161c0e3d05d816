#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/kernels.h"
#include "costmodel/base/input_error.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/test_kernels.h"

namespace stepsim::cuda::test {
namespace {

constexpr double kPi = 3.14159265358979323846;

/// A function, its slope, and the magnitude of what the slope adds up.
struct Function {
  double value;
  double slope;
  double slope_scale;
};

Function gelu_erf(double x) {
  const double below = 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
  const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * kPi);
  return {x * below, below + x * density, 1 + std::abs(x) * density * (1 + x * x)};
}

Function gelu_tanh(double x) {
  const double root = std::sqrt(2 / kPi);
  const double t = std::tanh(root * (x + 0.044715 * x * x * x));
  const double du = root * (1 + 3 * 0.044715 * x * x);
  return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du, 1 + std::abs(x) * du};
}

Function evaluate(ActivationKind kind, double x) {
  const double up = x > 0 ? x : 0;
  switch (kind) {
    case ActivationKind::GeluErf:
      return gelu_erf(x);
    case ActivationKind::GeluTanh:
      return gelu_tanh(x);
    case ActivationKind::ReluSquared:
      return {up * up, 2 * up, 2 * up};
    case ActivationKind::Tanh:
      return {std::tanh(x), 1 - std::tanh(x) * std::tanh(x), 1};
    case ActivationKind::Relu:
      return {up, x > 0 ? 1.0 : 0.0, 1};
  }
  return {};
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

TEST_CASE("cuda: sums of two and three arrays") {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t count : counts()) {
      for (const std::int64_t skew : {0, 1}) {
        CAPTURE(count);
        CAPTURE(skew);
        const DeviceArray a(dtype, numbers(count, 1), skew);
        const DeviceArray b(dtype, numbers(count, 2), skew);
        const DeviceArray c(dtype, numbers(count, 3), skew);
        const DeviceArray two(dtype, count, skew);
        const DeviceArray three(dtype, count, skew);
        add_elements(stream(), two.array(), a.array(), b.array(), {}, count);
        add_elements(stream(), three.array(), a.array(), b.array(), c.array(), count);
        std::vector<Expected> of_two;
        std::vector<Expected> of_three;
        for (std::int64_t i = 0; i < count; ++i) {
          const double scale = std::abs(a[i]) + std::abs(b[i]) + std::abs(c[i]);
          of_two.push_back({a[i] + b[i], scale});
          of_three.push_back({a[i] + b[i] + c[i], scale});
        }
        check(two, of_two, 1);
        check(three, of_three, 2);
      }
    }
  }
}

TEST_CASE("cuda: scaled copies between dtypes, assigned and added") {
  for (const Dtype to : kDtypes) {
    for (const Dtype from : kDtypes) {
      for (const std::int64_t count : {7, 1000, 4099}) {
        CAPTURE(name_of(from));
        const std::int64_t skew = count == 7 ? 1 : 0;
        const DeviceArray a(from, numbers(count, 1), skew);
        const DeviceArray assigned(to, count, skew);
        const DeviceArray added(to, numbers(count, 2), skew);
        const DeviceArray cast(to, count, skew);
        scaled_copy(stream(), assigned.array(), a.array(), 0.3F, count, Store::Assign);
        scaled_copy(stream(), added.array(), a.array(), 0.3F, count, Store::Add);
        scaled_copy(stream(), cast.array(), a.array(), 1, count, Store::Assign);
        std::vector<Expected> of_assigned;
        std::vector<Expected> of_added;
        for (std::int64_t i = 0; i < count; ++i) {
          const double scaled = static_cast<double>(0.3F) * a[i];
          of_assigned.push_back({scaled, std::abs(scaled)});
          of_added.push_back({scaled + added[i], std::abs(scaled) + std::abs(added[i])});
        }
        check(assigned, of_assigned, 1);
        check(added, of_added, 2);
        check_exact(cast, a.values());
      }
    }
  }
}

TEST_CASE("cuda: dropout keeps a share, and the same elements whatever the alignment") {
  constexpr std::int64_t kCount = 40'001;
  constexpr float kP = 0.3F;
  for (const Dtype dtype : kDtypes) {
    const DeviceArray x(dtype, numbers(kCount, 1, 0.5, 1));
    const DeviceArray skewed(dtype, x.values(), 1);
    const DeviceArray out(dtype, kCount);
    const DeviceArray skewed_out(dtype, kCount, 1);
    const DeviceArray other(dtype, kCount);
    dropout(stream(), out.array(), x.array(), kP, 5, kCount);
    dropout(stream(), skewed_out.array(), skewed.array(), kP, 5, kCount);
    dropout(stream(), other.array(), x.array(), kP, 6, kCount);
    const std::vector<double> values = out.read();
    CHECK(values == skewed_out.read());
    const std::vector<double> others = other.read();
    std::vector<Expected> expected;
    double kept = 0;
    double kept_in_both = 0;
    for (std::int64_t i = 0; i < kCount; ++i) {
      const bool keeps = values[static_cast<std::size_t>(i)] != 0;
      kept += keeps ? 1 : 0;
      kept_in_both += keeps && others[static_cast<std::size_t>(i)] != 0 ? 1 : 0;
      expected.push_back({keeps ? x[i] / (1 - static_cast<double>(kP)) : 0.0, std::abs(x[i]) * 2});
    }
    check(out, expected, 3);
    // Five deviations of a binomial share.
    CHECK(std::abs(kept / kCount - 0.7) < 5 * std::sqrt(0.3 * 0.7 / kCount));
    CHECK(std::abs(kept_in_both / kCount - 0.49) < 5 * std::sqrt(0.49 * 0.51 / kCount));
    const DeviceArray whole(dtype, kCount);
    dropout(stream(), whole.array(), x.array(), 0, 5, kCount);
    check_exact(whole, x.values());
  }
  const DeviceArray x(Dtype::F32, numbers(4, 1));
  CHECK_THROWS_AS(dropout(stream(), x.array(), x.array(), 1, 5, 4), InputError);
}

TEST_CASE("cuda: activations and their gradients") {
  constexpr ActivationKind kKinds[] = {ActivationKind::GeluErf,
                                       ActivationKind::GeluTanh,
                                       ActivationKind::ReluSquared,
                                       ActivationKind::Tanh,
                                       ActivationKind::Relu};
  for (const ActivationKind kind : kKinds) {
    for (const Dtype dtype : kDtypes) {
      for (const std::int64_t count : {1, 1023, 4099}) {
        for (const std::int64_t skew : {0, 1}) {
          CAPTURE(static_cast<int>(kind));
          CAPTURE(count);
          const DeviceArray x(dtype, numbers(count, 1, 8), skew);
          const DeviceArray dy(dtype, numbers(count, 2), skew);
          const DeviceArray y(dtype, count, skew);
          const DeviceArray dx(dtype, count, skew);
          activation_forward(stream(), kind, y.array(), x.array(), count);
          activation_backward(stream(), kind, dx.array(), dy.array(), x.array(), count);
          std::vector<Expected> of_y;
          std::vector<Expected> of_dx;
          for (std::int64_t i = 0; i < count; ++i) {
            const Function f = evaluate(kind, x[i]);
            of_y.push_back({f.value, std::abs(x[i]) + std::abs(f.value)});
            of_dx.push_back({dy[i] * f.slope, std::abs(dy[i]) * f.slope_scale});
          }
          check(y, of_y, 8);  // Library functions: up to 2 ulp, that is 4 roundings.
          check(dx, of_dx, 12);
        }
      }
    }
  }
}

TEST_CASE("cuda: SwiGLU and its gradients") {
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t count : {1, 1023, 4099}) {
      CAPTURE(count);
      const DeviceArray gate(dtype, numbers(count, 1, 8));
      const DeviceArray up(dtype, numbers(count, 2));
      const DeviceArray dy(dtype, numbers(count, 3));
      const DeviceArray y(dtype, count);
      const DeviceArray dgate(dtype, count);
      const DeviceArray dup(dtype, count);
      swiglu_forward(stream(), y.array(), gate.array(), up.array(), count);
      swiglu_backward(
          stream(), dgate.array(), dup.array(), dy.array(), gate.array(), up.array(), count);
      std::vector<Expected> of_y;
      std::vector<Expected> of_dgate;
      std::vector<Expected> of_dup;
      for (std::int64_t i = 0; i < count; ++i) {
        const double g = gate[i];
        const double s = sigmoid(g);
        const double silu = g * s;
        const double slope = s * (1 + g * (1 - s));
        of_y.push_back({silu * up[i], std::abs(silu * up[i])});
        of_dup.push_back({dy[i] * silu, std::abs(dy[i] * silu)});
        of_dgate.push_back(
            {dy[i] * up[i] * slope, std::abs(dy[i] * up[i]) * s * (1 + std::abs(g))});
      }
      // e^-x: an argument of up to 8 is exact; 4 roundings, then a sum, a quotient, products.
      check(y, of_y, 9);
      check(dup, of_dup, 9);
      check(dgate, of_dgate, 14);
    }
  }
}

TEST_CASE("cuda: uniform numbers are the same everywhere, normal ones are normal") {
  constexpr std::int64_t kCount = 50'001;
  constexpr std::uint64_t kSeed = 9;
  std::vector<double> expected;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    std::uint64_t z = kSeed + (i + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    z ^= z >> 31;
    const auto unit = static_cast<float>(z >> 40) * 0x1p-24F;
    expected.push_back(std::fma(0.25F, 2 * unit - 1, 1.0F));
  }
  for (const Dtype dtype : kDtypes) {
    for (const std::int64_t skew : {0, 1}) {
      const DeviceArray uniform(dtype, kCount, skew);
      fill_uniform(stream(), uniform.array(), kCount, 0.25F, 1.0F, kSeed);
      check_exact(uniform, expected);
    }
    const DeviceArray normal(dtype, kCount);
    fill_normal(stream(), normal.array(), kCount, 0.5F, kSeed);
    double sum = 0;
    double squares = 0;
    double fourths = 0;
    for (const double x : normal.read()) {
      sum += x / 0.5;
      squares += std::pow(x / 0.5, 2);
      fourths += std::pow(x / 0.5, 4);
    }
    // Moments 0, 1, 3 with deviations sqrt(1/n), sqrt(2/n), sqrt(96/n); five of them, and the
    // dtype's rounding.
    const double one = 5 / std::sqrt(static_cast<double>(kCount));
    const double u = unit_roundoff(dtype);
    CHECK(std::abs(sum / kCount) < one + u);
    CHECK(std::abs(squares / kCount - 1) < one * std::sqrt(2.0) + 2 * u);
    CHECK(std::abs(fourths / kCount - 3) < one * std::sqrt(96.0) + 12 * u);
  }
}

TEST_CASE("cuda: dtypes that do not go together are refused") {
  const DeviceArray a(Dtype::F32, numbers(8, 1));
  const DeviceArray b(Dtype::Bf16, numbers(8, 1));
  CHECK_THROWS_AS(add_elements(stream(), a.array(), a.array(), b.array(), {}, 8), InputError);
  const Array f64{a.array().data, Dtype::F64};
  CHECK_THROWS_WITH_AS(
      fill_uniform(stream(), f64, 4, 1, 0, 1), doctest::Contains("not f64"), InputError);
}

}  // namespace stepsim::cuda::test

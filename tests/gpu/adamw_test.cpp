#include <cmath>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/kernels.h"
#include "tests/gpu/adamw_problem.h"
#include "tests/gpu/checks.h"

namespace stepsim::cuda::test {
namespace {

void check_update(Dtype dtype, Dtype copy_dtype, std::int64_t count, std::int64_t step) {
  CAPTURE(name_of(copy_dtype));
  CAPTURE(count);
  CAPTURE(step);
  const auto [skew, w, m, v, g] = adamw_problem(dtype, count);
  const DeviceArray copy(copy_dtype, count, skew);
  const AdamW options{.learning_rate = 2e-3F};
  adamw_update(
      stream(), options, w.array(), m.array(), v.array(), g.array(), copy.array(), count, step);
  const double rate = options.learning_rate;
  const double b1 = options.beta1;
  const double b2 = options.beta2;
  const auto steps = static_cast<double>(step);
  std::vector<Expected> of_w;
  std::vector<Expected> of_m;
  std::vector<Expected> of_v;
  for (std::int64_t i = 0; i < count; ++i) {
    const double first = b1 * m[i] + (1 - b1) * g[i];
    const double first_scale = b1 * std::abs(m[i]) + (1 - b1) * std::abs(g[i]);
    const double second = b2 * v[i] + (1 - b2) * g[i] * g[i];
    const double deviation = std::sqrt(second / (1 - std::pow(b2, steps))) + options.epsilon;
    const double slope = rate / (1 - std::pow(b1, steps)) / deviation;
    const double kept = w[i] - rate * options.weight_decay * w[i];
    of_m.push_back({first, first_scale});
    of_v.push_back({second, second});
    of_w.push_back({kept - slope * first, std::abs(kept) + slope * first_scale});
  }
  check(m, of_m, 3);
  check(v, of_v, 4);
  check(w, of_w, 14);
  check(copy, of_w, 14);
}

}  // namespace

TEST_CASE("cuda: AdamW updates weights and moments, and writes a copy in another dtype") {
  for (const Dtype dtype : kDtypes) {
    for (const Dtype copy_dtype : kDtypes) {
      for (const std::int64_t count : {1, 7, 4099}) {
        check_update(dtype, copy_dtype, count, 1);
        check_update(dtype, copy_dtype, count, 1000);
      }
    }
  }
}

TEST_CASE("cuda: AdamW without a copy") {
  const DeviceArray w(Dtype::F32, numbers(100, 1));
  const DeviceArray m(Dtype::F32, std::vector<double>(100, 0.0));
  const DeviceArray v(Dtype::F32, std::vector<double>(100, 0.0));
  const DeviceArray g(Dtype::F32, numbers(100, 2));
  const AdamW options{.learning_rate = 2e-3F};
  adamw_update(stream(), options, w.array(), m.array(), v.array(), g.array(), {}, 100, 1);
  // The first step moves every weight by the learning rate, against the gradient's sign.
  std::vector<Expected> expected;
  for (std::int64_t i = 0; i < 100; ++i) {
    const double rate = options.learning_rate;
    const double kept = w[i] * (1 - rate * static_cast<double>(options.weight_decay));
    const double moved = kept - rate * g[i] / (std::abs(g[i]) + 1e-8);
    expected.push_back({moved, std::abs(kept) + rate});
  }
  check(w, expected, 14);
}

}  // namespace stepsim::cuda::test

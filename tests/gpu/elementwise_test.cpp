#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include "calibrate/cuda/kernels/kernels.h"
#include "costmodel/base/input_error.h"
#include "tests/gpu/checks.h"

namespace stepsim::cuda::test {

TEST_CASE("cuda: scaled copies between dtypes") {
  for (const Dtype to : kDtypes) {
    for (const Dtype from : kDtypes) {
      for (const std::int64_t count : counts()) {
        CAPTURE(name_of(from));
        CAPTURE(count);
        const std::int64_t skew = count == 7 ? 1 : 0;
        const DeviceArray a(from, numbers(count, 1), skew);
        const DeviceArray scaled(to, count, skew);
        const DeviceArray cast(to, count, skew);
        scaled_copy(stream(), scaled.array(), a.array(), 0.3F, count);
        scaled_copy(stream(), cast.array(), a.array(), 1, count);
        std::vector<Expected> expected;
        for (std::int64_t i = 0; i < count; ++i) {
          const double value = static_cast<double>(0.3F) * a[i];
          expected.push_back({value, std::abs(value)});
        }
        check(scaled, expected, 1);
        check_exact(cast, a.values());
      }
    }
  }
}

TEST_CASE("cuda: normal numbers are normal") {
  constexpr std::int64_t kCount = 50'001;
  constexpr std::uint64_t kSeed = 9;
  for (const Dtype dtype : kDtypes) {
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

TEST_CASE("cuda: a dtype that no kernel has is refused") {
  const DeviceArray a(Dtype::F32, numbers(8, 1));
  const Array f64{a.array().data, Dtype::F64};
  CHECK_THROWS_WITH_AS(
      fill_normal(stream(), f64, 4, 1, 1), doctest::Contains("not f64"), InputError);
}

}  // namespace stepsim::cuda::test

// Are the quantiles of distributions those of printed tables?
#include "costmodel/base/quantile.h"

#include <doctest/doctest.h>

#include "tests/approx.h"

namespace stepsim {

TEST_CASE("quantile: Student's distribution and the normal one, as in tables") {
  constexpr double kLastDigit = 5e-4;
  const auto is = [](double value) { return test::Approx(value).epsilon(kLastDigit / value); };
  CHECK(student_quantile(1, 0.975) == is(12.706));
  CHECK(student_quantile(2, 0.95) == is(2.920));
  CHECK(student_quantile(10, 0.95) == is(1.812));
  CHECK(student_quantile(30, 0.995) == is(2.750));
  CHECK(student_quantile(120, 0.975) == is(1.980));
  CHECK(normal_quantile(0.95) == is(1.645));
  CHECK(normal_quantile(0.975) == is(1.960));
  CHECK(normal_quantile(0.5) == test::Approx(0));
}

}  // namespace stepsim

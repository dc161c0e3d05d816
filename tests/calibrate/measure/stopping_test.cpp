#include "calibrate/measure/stopping.h"

#include <doctest/doctest.h>

#include "calibrate/samples/statistics.h"
#include "tests/approx.h"
#include "tests/calibrate/measure/fake_backend.h"

using stepsim::test::Approx;

namespace stepsim {

TEST_CASE(
    "measuring stops when the median is known well enough, not before the fewest repetitions") {
  StoppingRule rule;
  rule.target = 0.01;
  rule.min_repetitions = 5;
  Stopping stopping(rule);
  for (int i = 0; i < 4; ++i) {
    stopping.add(1.0);  // No noise at all, but too few.
    CHECK_FALSE(stopping.done());
  }
  stopping.add(1.0);
  CHECK(stopping.reason() == StopReason::Precise);
}

TEST_CASE("the standard error of the median falls with the root of the repetitions") {
  test::Noise noise(1);
  StoppingRule rule;
  rule.target = 0.01;
  rule.min_repetitions = 5;
  rule.stable_window = 1000000;
  Stopping stopping(rule);
  while (!stopping.done()) {
    stopping.add(1 + 0.1 * noise.next());
  }
  // 1.2533 * 0.1 / sqrt(n) = 0.01 at n = 157.
  CHECK(stopping.repetitions() > 70);
  CHECK(stopping.repetitions() < 320);
  CHECK(stopping.noise() == Approx(0.1).epsilon(0.3));
}

TEST_CASE("measuring stops when the noise is stable although the target is out of reach") {
  test::Noise noise(2);
  StoppingRule rule;
  rule.target = 1e-6;
  rule.stable_change = 0.1;
  Stopping stopping(rule);
  while (!stopping.done() && stopping.repetitions() < 5000) {
    stopping.add(1 + 0.2 * noise.next());
  }
  CHECK(stopping.reason() == StopReason::StableNoise);
}

TEST_CASE("measuring stops when the time of the point is used up") {
  StoppingRule rule;
  rule.max_seconds = 2.5;
  Stopping stopping(rule);
  stopping.add(1);
  stopping.add(1.4);
  CHECK_FALSE(stopping.done());
  stopping.add(0.2);
  CHECK(stopping.reason() == StopReason::OutOfTime);
}

TEST_CASE("median, quantiles and the robust deviation are what their definitions say") {
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 3}) == 2.5);
  CHECK(quantile({0, 10}, 0.2) == Approx(2));
  CHECK(quantile({5}, 0.8) == 5);
  // Deviations from 3: 2 1 0 1 97; their median is 1, the outlier does not count.
  CHECK(robust_deviation({1, 2, 3, 4, 100}) == Approx(1.4826));
}

}  // namespace stepsim

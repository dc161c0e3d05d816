#include "costmodel/compute/shared_cores.h"

#include <doctest/doctest.h>

#include "tests/approx.h"

using namespace stepsim;
using stepsim::test::Approx;

TEST_CASE("ranks with a core each do not slow each other") {
  const std::vector<double> seconds = {1, 5, 2};
  CHECK(shared_core_factors(seconds, 3) == std::vector<double>{1, 1, 1});
  CHECK(shared_core_factors(seconds, 8) == std::vector<double>{1, 1, 1});
  CHECK(shared_core_factors({}, 2).empty());
}

TEST_CASE("four equal ranks on two cores take twice as long") {
  const std::vector<double> seconds = {3, 3, 3, 3};
  CHECK(shared_core_factors(seconds, 2) == std::vector<double>{2, 2, 2, 2});
}

TEST_CASE("who is left computes faster, and no core is idle while there is work for it") {
  // Three share two cores for 3 s (2 each), then the last has one of its own: 3 + 4 s.
  const std::vector<double> seconds = {2, 6, 2};
  const auto factors = shared_core_factors(seconds, 2);
  CHECK(factors[0] * 2 == Approx(3));
  CHECK(factors[2] * 2 == Approx(3));
  CHECK(factors[1] * 6 == Approx(7));
  // On one core the last ends when all is done.
  const std::vector<double> one = {1, 0, 4, 2};
  const auto shared = shared_core_factors(one, 1);
  CHECK(shared[0] * 1 == Approx(3));
  CHECK(shared[1] == 1);
  CHECK(shared[3] * 2 == Approx(5));
  CHECK(shared[2] * 4 == Approx(7));
}

TEST_CASE("a fraction of a core is a rate: two ranks on 1.25 cores") {
  // Both run at 0.625 until the first has its 5 s, at 8 s; the other then has a core of its own.
  const std::vector<double> factors = shared_core_factors(std::vector<double>{5, 10}, 1.25);
  CHECK(factors[0] == Approx(1.6));
  CHECK(factors[1] == Approx(1.3));
}

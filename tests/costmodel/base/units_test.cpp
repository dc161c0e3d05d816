#include "costmodel/base/units.h"

#include <limits>
#include <stdexcept>

#include <doctest/doctest.h>

#include "tests/approx.h"

using namespace stepsim;
using stepsim::test::Approx;

TEST_CASE("seconds cross into the clock rounded to the nearest nanosecond") {
  CHECK(to_duration(1.4e-9) == Duration(1));
  CHECK(to_duration(1.6e-9) == Duration(2));
  CHECK(to_duration(0) == Duration(0));
  CHECK(to_ms(to_duration(0.25)) == Approx(250));
}

TEST_CASE("a time that is negative, not a number or endless does not cross into the clock") {
  CHECK_THROWS_AS((void)to_duration(-1e-9), std::domain_error);
  CHECK_THROWS_AS((void)to_duration(std::numeric_limits<double>::quiet_NaN()), std::domain_error);
  CHECK_THROWS_AS((void)to_duration(std::numeric_limits<double>::infinity()), std::domain_error);
}

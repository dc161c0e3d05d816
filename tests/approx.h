#pragma once

#include <doctest/doctest.h>

namespace stepsim::test {

/// A value to compare with up to a relative error; 0 up to an absolute one. doctest's own adds 1 to
/// every magnitude, so that any two times in seconds that are small are alike.
inline doctest::Approx Approx(double value) {
  return doctest::Approx(value).scale(value == 0 ? 1 : 0);
}

}  // namespace stepsim::test

#include "costmodel/units.h"

#include <cmath>
#include <stdexcept>

namespace stepsim {

Duration to_duration(double seconds) {
  const double nanoseconds = seconds * 1e9;
  if (!(nanoseconds >= 0) || nanoseconds > 9.2e18) {
    throw std::domain_error("a duration must be finite, not negative and below 292 years");
  }
  return Duration(std::llround(nanoseconds));
}

}  // namespace stepsim

#pragma once

#include <cstdint>

#include "costmodel/base/input_error.h"
#include "costmodel/base/units.h"

namespace stepsim {

/// The longest time that a simulated clock shows, and the longest of a single duration: 9.1 years.
/// The sum of a few such times fits into the 63 bits of a clock, so that comparing after an
/// addition is enough to find that it went too far.
inline constexpr Duration kTimeLimit{std::int64_t{1} << 58};

/// Raises InputError: the run takes longer than kTimeLimit.
[[noreturn]] inline void refuse_time() {
  throw InputError(
      "the simulated clock would pass nine years; some duration or factor is far too large");
}

/// `time`, which must not pass the limit. Raises InputError.
[[nodiscard]] inline Duration bounded(Duration time) {
  if (time > kTimeLimit) {
    refuse_time();
  }
  return time;
}
[[nodiscard]] inline SimTime bounded(SimTime time) {
  return SimTime(bounded(time.time_since_epoch()));
}

/// to_duration() of a time that must not pass the limit. Raises InputError.
[[nodiscard]] inline Duration bounded_duration(double seconds) {
  if (!(seconds <= to_seconds(kTimeLimit))) {
    refuse_time();
  }
  return to_duration(seconds);
}

/// Checks that `count` durations of `each` together do not pass the limit. Raises InputError.
inline void check_total(Duration each, std::int64_t count) {
  if (count > 0 && each > kTimeLimit / count) {
    refuse_time();
  }
}

}  // namespace stepsim

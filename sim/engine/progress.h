#pragma once

#include <algorithm>
#include <cstdint>

#include "costmodel/base/units.h"

namespace stepsim::engine_detail {

/// A duration times a factor, to the nearest nanosecond. What is longer than any clock shows
/// becomes that long.
[[nodiscard]] inline Duration scaled(Duration duration, double factor) {
  constexpr double kTooLong = 0x1p60;  // Beyond kTimeLimit; its sum with a time does not wrap.
  // NOLINTBEGIN(bugprone-incorrect-roundings): no time is negative, and llround() is a call.
  return factor == 1
             ? duration
             : Duration(static_cast<std::int64_t>(
                   std::min(kTooLong, static_cast<double>(duration.count()) * factor) + 0.5));
  // NOLINTEND(bugprone-incorrect-roundings)
}

/// Work or a transfer that is under way at a rate that changes.
struct Progress {
  Duration left{0};  ///< What is left to do, as it would take at full speed.
  SimTime since;     ///< When `left` was last brought up to date; later than now: it starts then.
  double slowdown = 1;
  std::int32_t generation = 0;
  bool running = false;

  void start(SimTime at, Duration work) {
    left = work;
    since = at;
    running = true;
  }

  /// Takes off what was done until `now`, goes on at the new rate and returns the new end.
  SimTime change(SimTime now, double new_slowdown) {
    if (now > since) {
      left = std::max(Duration::zero(), left - scaled(now - since, 1 / slowdown));
      since = now;
    }
    slowdown = new_slowdown;
    ++generation;
    return end();
  }

  [[nodiscard]] SimTime end() const { return since + scaled(left, slowdown); }
};

}  // namespace stepsim::engine_detail

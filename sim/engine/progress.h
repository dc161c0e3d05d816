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
  Duration left_before{0};  ///< The same before the last change.
  SimTime since_before;
  double slowdown_before = 0;  ///< 0: it has not changed.
  std::int32_t generation = 0;
  bool running = false;

  void start(SimTime at, Duration work) {
    left = work;
    since = at;
    slowdown_before = 0;
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

  /// Does the same. Where the old rate comes back at the time of the last change, it undoes that
  /// change, which had been rounded.
  SimTime change_or_take_back(SimTime now, double new_slowdown) {
    if (now > since) {
      left_before = left;
      since_before = since;
      slowdown_before = slowdown;
    } else if (now == since && new_slowdown == slowdown_before) {
      left = left_before;
      since = since_before;
      slowdown = slowdown_before;
      ++generation;
      return end();
    }
    return change(now, new_slowdown);
  }

  [[nodiscard]] SimTime end() const { return since + scaled(left, slowdown); }
};

}  // namespace stepsim::engine_detail

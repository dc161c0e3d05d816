#pragma once

#include <ctime>

namespace stepsim {

/// Seconds on CLOCK_MONOTONIC: one clock for all processes of a host.
inline double clock_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace stepsim

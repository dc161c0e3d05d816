#pragma once

#include <optional>

namespace stepsim {

/// Sleeps for `seconds` and returns the share of the machine's processor time that was busy
/// meanwhile, from 0 (idle) to 1 (every processor busy). Absent when /proc/stat does not tell. Call
/// it before measuring.
[[nodiscard]] std::optional<double> busy_share(double seconds);

}  // namespace stepsim

#pragma once

#include <optional>

namespace stepsim {

/// Share of the machine's processor time that was busy while this process slept for `seconds`:
/// 0 idle, 1 every processor busy. Absent when /proc/stat does not tell. Call before measuring.
[[nodiscard]] std::optional<double> busy_share(double seconds);

}  // namespace stepsim

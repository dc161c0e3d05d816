#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <stdexcept>

namespace stepsim {

/// The simulated clock counts whole nanoseconds. It has no now(), since simulated time does not
/// run.
struct SimClock {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = std::chrono::duration<rep, period>;
  using time_point = std::chrono::time_point<SimClock>;
  static constexpr bool is_steady = true;  // NOLINT(readability-identifier-naming): std::chrono
};

using Duration = SimClock::duration;
using SimTime = SimClock::time_point;

/// A counted quantity that can only be added to quantities of its own kind.
template <typename Tag>
class Count {
 public:
  constexpr Count() = default;
  constexpr explicit Count(std::int64_t value) : value_(value) {}
  [[nodiscard]] constexpr std::int64_t value() const { return value_; }
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the 0 of the comparison for one.
  constexpr auto operator<=>(const Count&) const = default;
  constexpr Count& operator+=(Count other) {
    value_ += other.value_;
    return *this;
  }
  friend constexpr Count operator+(Count a, Count b) { return Count(a.value_ + b.value_); }
  friend constexpr Count operator-(Count a, Count b) { return Count(a.value_ - b.value_); }
  friend constexpr Count operator*(Count a, std::int64_t times) { return Count(a.value_ * times); }

 private:
  std::int64_t value_ = 0;
};

using Bytes = Count<struct BytesTag>;

[[noreturn]] inline void refuse_duration() {
  throw std::domain_error("a duration must be finite, not negative and below 292 years");
}

/// Converts seconds from a formula to the simulated clock, rounded to the nearest nanosecond. This
/// is the only conversion in that direction.
///
/// Raises:
///     std::domain_error: `seconds` is negative, not finite, or beyond 292 years.
[[nodiscard]] inline Duration to_duration(double seconds) {
  const double nanoseconds = seconds * 1e9;
  if (!(nanoseconds >= 0) || nanoseconds > 9.2e18) {
    refuse_duration();
  }
  // This is std::llround() inlined: a prediction with noise converts the time of every op.
  const auto whole = static_cast<std::int64_t>(nanoseconds);
  return Duration(whole + (nanoseconds - static_cast<double>(whole) >= 0.5 ? 1 : 0));
}

[[nodiscard]] constexpr double to_seconds(Duration d) {
  return static_cast<double>(d.count()) * 1e-9;
}
[[nodiscard]] constexpr double to_ms(Duration d) {
  return static_cast<double>(d.count()) * 1e-6;
}

}  // namespace stepsim

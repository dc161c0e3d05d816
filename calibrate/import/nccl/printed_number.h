#pragma once

#include <optional>
#include <string_view>

namespace stepsim {

/// A number as a program printed it: its true value lies within `half_unit` of `value`.
struct PrintedNumber {
  double value = 0;
  double half_unit = 0;  ///< Half a unit of the last printed place: 0.005 for "1.25", 0.5 for "12".

  bool operator==(const PrintedNumber&) const = default;
};

[[nodiscard]] constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// A whole token as a decimal number ("12", "-1", "1.25", "1.2e+07"); absent when it is none.
/// `power` is added to the decimal exponent, exactly: 3 reads milliseconds as microseconds.
[[nodiscard]] std::optional<PrintedNumber> parse_printed(std::string_view token, int power = 0);

}  // namespace stepsim

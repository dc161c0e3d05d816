#include "sim/report/number_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

namespace stepsim {

namespace {

/// The decimals of three digits.
int three_digits_decimals(double value) {
  return value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3;
}

std::string three_digits(double value) {
  return fmt::format("{:.{}f}", value, three_digits_decimals(value));
}

}  // namespace

std::string percent(double fraction) {
  return fmt::format("{:.1f} %", fraction * 100);
}

std::string signed_percent(double fraction) {
  return fmt::format("{:+.1f} %", fraction * 100);
}

std::string step_ms_text(double ms) {
  return ms < 100 ? fmt::format("{:.2f}", ms) : fmt::format("{:.0f}", ms);
}

std::string mean_text(double value, double width) {
  constexpr int kMost = 3;
  const int carried = width > 0 ? static_cast<int>(std::ceil(-std::log10(width))) + 1 : kMost;
  return fmt::format("{:.{}f}", value, std::clamp(carried, three_digits_decimals(value), kMost));
}

std::string interval(double low, double high) {
  return three_digits(low) + "-" + three_digits(high);
}

}  // namespace stepsim

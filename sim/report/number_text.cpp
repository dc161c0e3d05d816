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
  constexpr double kLarge = 10;  // From +1000 % on, a tenth of a percent tells nothing.
  return std::abs(fraction) < kLarge ? fmt::format("{:+.1f} %", fraction * 100)
                                     : fmt::format("{:+.0f} %", fraction * 100);
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

std::string figure_text(double value, int digits) {
  const int whole = value >= 1 ? static_cast<int>(std::log10(value)) + 1 : 0;
  return whole >= digits ? fmt::format("{:.0f}", value) : fmt::format("{:.{}g}", value, digits);
}

std::string hours_text(double hours) {
  constexpr double kMinutes = 60;
  constexpr double kHoursPerDay = 24;
  constexpr double kShort = 1;
  constexpr double kLong = 48;
  constexpr int kDigits = 3;
  return hours < kShort  ? figure_text(hours * kMinutes, kDigits) + " min"
         : hours < kLong ? figure_text(hours, kDigits) + " h"
                         : figure_text(hours / kHoursPerDay, kDigits) + " days";
}

std::string flops_per_second_text(double flops) {
  constexpr double kTera = 1e12;
  constexpr double kGiga = 1e9;
  return flops < kTera ? figure_text(flops / kGiga, 3) + " GFLOP/s"
                       : figure_text(flops / kTera, 3) + " TFLOP/s";
}

std::string memory_text(double mib) {
  constexpr double kMibOfGib = 1024;
  return mib < kMibOfGib ? three_digits(mib) + " MiB" : three_digits(mib / kMibOfGib) + " GiB";
}

}  // namespace stepsim

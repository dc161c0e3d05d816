#include "sim/report/number_text.h"

#include <fmt/core.h>

namespace stepsim {

namespace {

std::string three_digits(double value) {
  const int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3;
  return fmt::format("{:.{}f}", value, digits);
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

std::string interval(double low, double high) {
  return three_digits(low) + "-" + three_digits(high);
}

}  // namespace stepsim

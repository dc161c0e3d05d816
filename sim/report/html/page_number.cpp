#include "sim/report/html/page_number.h"

#include <cmath>
#include <string>

#include <fmt/core.h>

namespace stepsim {

double page_us(Duration duration) {
  return std::round(static_cast<double>(duration.count()) / 100) / 10;
}

double page_ms(double ms) {
  return std::isfinite(ms) ? std::stod(fmt::format("{:.6g}", ms)) : 0;
}

}  // namespace stepsim

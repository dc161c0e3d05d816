#include "costmodel/terminal/bars.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace stepsim {

std::string bar_text(double share, std::size_t width, const Screen& screen) {
  constexpr int kEighths = 8;
  constexpr std::array<const char*, kEighths> kParts = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double length = std::clamp(share, 0.0, 1.0) * static_cast<double>(width);
  if (!screen.utf8) {
    return std::string(static_cast<std::size_t>(std::lround(length)), '#');
  }
  const auto eighths = static_cast<std::size_t>(std::lround(length * kEighths));
  std::string text;
  for (std::size_t i = 0; i < eighths / kEighths; ++i) {
    text += "█";
  }
  return text + kParts[eighths % kEighths];
}

std::string interval_text(const Interval90& interval,
                          double left,
                          double right,
                          std::size_t width,
                          const Screen& screen) {
  const auto column = [&](double value) {
    const double share = right > left ? (value - left) / (right - left) : 0;
    return static_cast<std::size_t>(
        std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(width - 1)));
  };
  const std::size_t low = column(std::min(interval.low, interval.value));
  const std::size_t high = column(std::max(interval.high, interval.value));
  std::string text(low, ' ');
  for (std::size_t i = low; i <= high; ++i) {
    const bool end = i == low || i == high;
    const char* line = screen.utf8 ? (i == low ? "├" : i == high ? "┤" : "─") : end ? "|" : "-";
    text += i == column(interval.value) ? (screen.utf8 ? "●" : "o") : line;
  }
  return text;
}

}  // namespace stepsim

#pragma once

#include <string>

#include "costmodel/terminal/screen.h"

namespace stepsim {

/// Draws a bar that fills `share` (0 to 1) of `width` columns, in steps of an eighth of a column.
[[nodiscard]] std::string bar_text(double share, std::size_t width, const Screen& screen);

/// A 90 % interval and the value that it belongs to.
struct Interval90 {
  double low = 0;
  double value = 0;
  double high = 0;
};

/// Draws the interval on an axis of `width` columns from `left` to `right`: "  |---o-----|".
[[nodiscard]] std::string interval_text(
    const Interval90& interval, double left, double right, std::size_t width, const Screen& screen);

}  // namespace stepsim

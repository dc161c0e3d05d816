#pragma once

#include "costmodel/base/units.h"

namespace stepsim {

/// Converts to microseconds, rounded to 0.1, which keeps the page small.
[[nodiscard]] double page_us(Duration duration);

/// Rounds milliseconds to six significant digits.
[[nodiscard]] double page_ms(double ms);

}  // namespace stepsim

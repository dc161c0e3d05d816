#pragma once

#include "costmodel/base/units.h"

namespace stepsim {

/// Microseconds, rounded to 0.1.
[[nodiscard]] double page_us(Duration duration);

/// A number rounded to six significant digits.
[[nodiscard]] double page_ms(double ms);

}  // namespace stepsim

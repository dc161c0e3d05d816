#pragma once

#include <string>

#include "costmodel/terminal/screen.h"

namespace stepsim {

/// What a text means; the colours are the terminal's own.
enum class Paint { Plain, Strong, Quiet, Good, Warning, Bad, Command };

/// The text between escape sequences; as it is on a screen without colour.
[[nodiscard]] std::string painted(const std::string& text, Paint paint, const Screen& screen);

}  // namespace stepsim

#pragma once

#include <string>

#include "costmodel/terminal/screen.h"

namespace stepsim {

/// What a text means. Each meaning has one of the terminal's own colours.
enum class Paint { Plain, Strong, Quiet, Good, Warning, Bad, Command };

/// Puts the text between escape sequences; a screen without colour gets it unchanged.
[[nodiscard]] std::string painted(const std::string& text, Paint paint, const Screen& screen);

}  // namespace stepsim

#pragma once

#include <string>

#include "costmodel/terminal/screen.h"

namespace stepsim {

/// What a text means. Each meaning has one of the terminal's own colours.
enum class Paint { Plain, Strong, Quiet, Good, Warning, Bad, Command };

/// Begins a mark of paint in a text that is not printed yet: no text of UTF-8 has this byte, so
/// that nothing out of a file is taken for paint.
inline constexpr char kPaintMark = '\xff';

/// Puts the text between marks of paint; a screen without colour gets it unchanged.
[[nodiscard]] std::string painted(const std::string& text, Paint paint, const Screen& screen);

/// Returns a text as a screen gets it: marks of paint become escape sequences, and all control
/// characters that came from elsewhere, but line ends and tabs, become \xNN.
[[nodiscard]] std::string printed(const std::string& text, const Screen& screen);

}  // namespace stepsim

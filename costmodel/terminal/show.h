#pragma once

#include <string>

#include "costmodel/terminal/screen.h"

namespace stepsim {

/// Lays a report out for a screen. On a terminal, sentences longer than its width are wrapped; a
/// sentence behind a label and two blanks stays in its column. What is to be copied is not
/// wrapped: commands ("next: …", "  stepsim …") and code, whose lines begin with four blanks. With
/// colour, labels at the start of a line are painted by labelled(). What it returns is printed().
[[nodiscard]] std::string shown(const std::string& text, const Screen& screen);

/// Paints the label that begins a line: "warning:", "next:", "usage:", ….
[[nodiscard]] std::string labelled(const std::string& line, const Screen& screen);

}  // namespace stepsim

#pragma once

#include <string>

#include "costmodel/terminal/screen.h"

namespace stepsim {

/// A report as a screen shows it. On a terminal, sentences longer than its width break at blanks,
/// those behind a label and two blanks into a column; commands to copy ("next: …") stay whole. With
/// colour, the words that begin a line say what it is, see labelled().
[[nodiscard]] std::string shown(const std::string& text, const Screen& screen);

/// One line with its label in colour: "warning:", "next:", "usage:", ….
[[nodiscard]] std::string labelled(const std::string& line, const Screen& screen);

}  // namespace stepsim

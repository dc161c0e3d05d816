#pragma once

namespace stepsim {

/// Where text goes: a terminal of so many columns, or a file or pipe, which gets lines as they are.
struct Screen {
  int columns = 0;       ///< 0: no terminal.
  bool colour = false;   ///< Escape sequences are understood and wanted.
  bool utf8 = false;     ///< Bars may be made of block characters.
  bool redraws = false;  ///< A terminal that can erase a line.

  [[nodiscard]] bool is_terminal() const { return columns > 0; }
};

/// The screen behind a file descriptor. The width is COLUMNS, else what the terminal states, else
/// 80. No colour with NO_COLOR or TERM=dumb; colour without a terminal with CLICOLOR_FORCE.
[[nodiscard]] Screen screen_of(int descriptor);

}  // namespace stepsim

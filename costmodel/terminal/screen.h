#pragma once

namespace stepsim {

/// Where text goes: to a terminal, whose width it is fitted to, or to a file or pipe, which gets
/// lines of any length.
struct Screen {
  int columns = 0;       ///< The terminal's width; 0: it is no terminal.
  bool colour = false;   ///< True: colours are understood and wanted.
  bool utf8 = false;     ///< True: bars may use block characters.
  bool redraws = false;  ///< True: the terminal can erase a line.
  bool wide = false;     ///< True: tables show all their columns, not those alone that fit in 80.

  [[nodiscard]] bool is_terminal() const { return columns > 0; }
};

/// Returns the screen behind a file descriptor. A terminal's width is COLUMNS, else what the
/// terminal states, else 80. NO_COLOR or TERM=dumb turn colours off; CLICOLOR_FORCE turns them on
/// without a terminal.
[[nodiscard]] Screen screen_of(int descriptor);

}  // namespace stepsim

#pragma once

#include <string>

#include "costmodel/terminal/table.h"

namespace stepsim {

/// Any text as it stands, within one line of GitHub's Markdown or a cell of its tables: control
/// characters as \xNN, and nothing in it is markup, HTML or the end of a cell. Underscores within
/// words stay as they are, since they mean nothing there.
[[nodiscard]] std::string markdown_text(const std::string& text);

/// Commands or other lines in a fence that nothing in them can close.
[[nodiscard]] std::string markdown_code(const std::string& lines);

/// A table of GitHub's Markdown: pipes aligned, cells escaped.
[[nodiscard]] std::string markdown_table(const Table& table);

}  // namespace stepsim

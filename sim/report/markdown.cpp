#include "sim/report/markdown.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/terminal/wrap.h"

namespace stepsim {

namespace {

/// A letter or digit; bytes beyond ASCII belong to one.
bool in_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0;
}

struct MarkdownColumn {
  std::size_t width = 3;  ///< The shortest rule between header and rows.
  bool left = false;
};

std::vector<std::string> escaped(std::vector<std::string> cells) {
  std::transform(cells.begin(), cells.end(), cells.begin(), markdown_text);
  return cells;
}

std::string pipe_line(const std::vector<std::string>& cells,
                      const std::vector<MarkdownColumn>& columns) {
  std::string line = "|";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string blanks(columns[i].width - display_width(cells[i]), ' ');
    line += " " + (columns[i].left ? cells[i] + blanks : blanks + cells[i]) + " |";
  }
  return line + "\n";
}

}  // namespace

std::string markdown_text(const std::string& text) {
  constexpr std::string_view kMarkup = "\\`*[]|~$";
  const std::string plain = printable(text, std::string::npos);
  std::string result;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const char c = plain[i];
    const bool inner =
        i > 0 && i + 1 < plain.size() && in_word(plain[i - 1]) && in_word(plain[i + 1]);
    if (c == '<' || c == '>' || c == '&') {
      result += c == '<' ? "&lt;" : (c == '>' ? "&gt;" : "&amp;");
      continue;
    }
    if (kMarkup.find(c) != std::string_view::npos || (c == '_' && !inner)) {
      result += '\\';
    }
    result += c;
  }
  return result;
}

std::string markdown_code(const std::string& lines) {
  std::size_t longest = 2;
  std::size_t run = 0;
  for (const char c : lines) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fence + "\n" + lines + "\n" + fence + "\n";
}

std::string markdown_table(const Table& table) {
  const std::vector<std::string> header = escaped(table.header());
  std::vector<std::vector<std::string>> rows = mapped(table.rows(), escaped);
  std::vector<MarkdownColumn> columns(header.size());
  std::string rule = "|";
  for (std::size_t i = 0; i < header.size(); ++i) {
    std::vector<std::string> cells;
    columns[i].width = std::max(columns[i].width, display_width(header[i]));
    for (const auto& row : rows) {
      cells.push_back(row[i]);
      columns[i].width = std::max(columns[i].width, display_width(row[i]));
    }
    columns[i].left = i == 0 || is_word_column(cells);
    const std::string dashes(columns[i].width - 1, '-');
    rule += columns[i].left ? " -" + dashes + " |" : " " + dashes + ": |";
  }
  std::string text = pipe_line(header, columns) + rule + "\n";
  for (const auto& row : rows) {
    text += pipe_line(row, columns);
  }
  return text;
}

}  // namespace stepsim

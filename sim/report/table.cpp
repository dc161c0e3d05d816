#include "sim/report/table.h"

#include <algorithm>

namespace stepsim {

namespace {

/// Columns on a terminal: UTF-8 continuation bytes take none.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string line_of(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string blanks(widths[i] - width_of(cells[i]), ' ');
    line += i == 0 ? cells[i] + blanks : "  " + blanks + cells[i];
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> widths(header_.size(), 0);
  for (std::size_t i = 0; i < header_.size(); ++i) {
    widths[i] = width_of(header_[i]);
    for (const auto& row : rows_) {
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  std::string text = line_of(header_, widths);
  for (const auto& row : rows_) {
    text += line_of(row, widths);
  }
  return text;
}

}  // namespace stepsim

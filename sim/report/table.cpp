#include "sim/report/table.h"

#include <algorithm>
#include <cctype>

namespace stepsim {

namespace {

/// Columns on a terminal: UTF-8 continuation bytes take none.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

/// A column of words: no cell begins like a number.
bool is_number(const std::string& cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell.front())) != 0 ||
                           cell.front() == '+' || cell.front() == '-');
}

struct Column {
  std::size_t width = 0;
  bool left = false;
};

std::string line_of(const std::vector<std::string>& cells, const std::vector<Column>& columns) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string blanks(columns[i].width - width_of(cells[i]), ' ');
    line += i == 0 ? "" : "  ";
    line += columns[i].left ? cells[i] + blanks : blanks + cells[i];
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string Table::text() const {
  std::vector<Column> columns(header_.size());
  for (std::size_t i = 0; i < header_.size(); ++i) {
    columns[i].width = width_of(header_[i]);
    columns[i].left = true;
    for (const auto& row : rows_) {
      columns[i].width = std::max(columns[i].width, width_of(row[i]));
      columns[i].left = columns[i].left && (i == 0 || !is_number(row[i]));
    }
  }
  std::string text = line_of(header_, columns);
  for (const auto& row : rows_) {
    text += line_of(row, columns);
  }
  return text;
}

}  // namespace stepsim

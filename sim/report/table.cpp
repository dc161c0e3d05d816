#include "sim/report/table.h"

#include <algorithm>
#include <cctype>

#include "sim/report/markdown.h"

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

std::vector<Column> columns_of(const std::vector<std::string>& header,
                               const std::vector<std::vector<std::string>>& rows) {
  std::vector<Column> columns(header.size());
  for (std::size_t i = 0; i < header.size(); ++i) {
    columns[i].width = width_of(header[i]);
    columns[i].left = true;
    for (const auto& row : rows) {
      columns[i].width = std::max(columns[i].width, width_of(row[i]));
      columns[i].left = columns[i].left && (i == 0 || !is_number(row[i]));
    }
  }
  return columns;
}

std::string aligned(const std::string& cell, const Column& column) {
  const std::string blanks(column.width - width_of(cell), ' ');
  return column.left ? cell + blanks : blanks + cell;
}

std::string line_of(const std::vector<std::string>& cells, const std::vector<Column>& columns) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += (i == 0 ? "" : "  ") + aligned(cells[i], columns[i]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string pipe_line(const std::vector<std::string>& cells, const std::vector<Column>& columns) {
  std::string line = "|";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += " " + aligned(cells[i], columns[i]) + " |";
  }
  return line + "\n";
}

std::vector<std::string> escaped(std::vector<std::string> cells) {
  std::transform(cells.begin(), cells.end(), cells.begin(), markdown_text);
  return cells;
}

}  // namespace

std::string Table::text() const {
  const std::vector<Column> columns = columns_of(header_, rows_);
  std::string text = line_of(header_, columns);
  for (const auto& row : rows_) {
    text += line_of(row, columns);
  }
  return text;
}

std::string Table::markdown() const {
  constexpr std::size_t kRule = 3;  // The shortest rule between header and rows.
  const std::vector<std::string> header = escaped(header_);
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : rows_) {
    rows.push_back(escaped(row));
  }
  std::vector<Column> columns = columns_of(header, rows);
  std::string rule = "|";
  for (Column& column : columns) {
    column.width = std::max(column.width, kRule);
    const std::string dashes(column.width - 1, '-');
    rule += column.left ? " -" + dashes + " |" : " " + dashes + ": |";
  }
  std::string text = pipe_line(header, columns) + rule + "\n";
  for (const auto& row : rows) {
    text += pipe_line(row, columns);
  }
  return text;
}

}  // namespace stepsim

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/base/units.h"

namespace stepsim {

/// A CSV file with a header line, read into memory: plain text or gzip, commas between the cells.
/// A cell may stand in double quotes, inside which "" is one of them, and may have blanks around
/// it. Lines may end with CR LF; blank lines are left out, and so is a byte order mark.
///
/// A cell is read by its row (from 0, not counting the header) and column. All errors are
/// InputError with file, line, column and the text of the line.
class CsvTable {
 public:
  /// The position of a column, from 0.
  using Column = std::size_t;

  /// Raises InputError: the file is unreadable, no text or has no header, the header has semicolons
  /// or tabs and no comma or names a column twice, or a row has more or fewer cells than the
  /// header.
  explicit CsvTable(std::string path);
  CsvTable(const CsvTable&) = delete;
  CsvTable& operator=(const CsvTable&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::size_t rows() const { return lines_.size() - 1; }
  /// Raises InputError when the header lacks this column.
  [[nodiscard]] Column column(std::string_view name) const;
  [[nodiscard]] std::optional<Column> find(std::string_view name) const;

  /// Raises InputError at the header for the first column that is not among these.
  void require_known(std::span<const std::string> known) const;

  /// Returns the names of the columns, in order.
  [[nodiscard]] std::span<const std::string_view> columns() const {
    return std::span(cells_).first(columns_);
  }

  [[nodiscard]] std::string_view text(std::size_t row, Column column) const {
    return cells_[(row + 1) * columns_ + column];
  }
  /// Reads a whole number from `lo` to `hi`.
  [[nodiscard]] std::int64_t integer(std::size_t row,
                                     Column column,
                                     std::int64_t lo,
                                     std::int64_t hi) const;
  /// Reads a finite number from `lo` to `hi`.
  [[nodiscard]] double real(std::size_t row, Column column, double lo, double hi) const;
  /// Reads a length of time in units of `unit` seconds (1e-6: microseconds), from 0 to one hour.
  [[nodiscard]] Duration duration(std::size_t row, Column column, double unit) const;
  /// Reads a length of time that may be negative, up to one hour either way.
  [[nodiscard]] Duration signed_duration(std::size_t row, Column column, double unit) const;
  /// Reads a point in time, 0 or later, up to the year 2096 in Unix time.
  [[nodiscard]] Duration time(std::size_t row, Column column, double unit) const;

  /// Returns the line number of a row in the file, from 1.
  [[nodiscard]] int line(std::size_t row) const { return lines_[row + 1].number; }
  /// Raises InputError for this cell: "file:line:column: error: name: message".
  [[noreturn]] void fail(std::size_t row, Column column, const std::string& message) const;

 private:
  struct Line {
    int number = 0;         ///< In the file, from 1.
    std::string_view text;  ///< Without its end.
  };

  std::size_t add_cells(const Line& line);
  std::size_t add_quoted_cell(const Line& line, std::size_t quote);
  [[nodiscard]] double number(std::size_t row, Column column) const;
  void check_separator() const;
  [[noreturn]] void fail_in_header(const std::string& message) const;

  std::string path_;
  std::string text_;
  std::size_t columns_ = 0;
  std::vector<std::string_view> cells_;  ///< [line][column], header first; without their quotes.
  std::vector<int> places_;              ///< [as cells_] where they begin in their line, from 1.
  std::vector<Line> lines_;              ///< Header first.
  std::deque<std::string> unquoted_;     ///< Cells that are not in text_ as they read.
};

}  // namespace stepsim

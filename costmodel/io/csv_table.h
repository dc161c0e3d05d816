#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/base/units.h"

namespace stepsim {

/// A CSV file with a header line, read into memory: plain text or gzip, commas between the cells,
/// no quotes. Lines may end with CR LF; blank lines are left out.
///
/// Cells are asked for by row (from 0, without the header) and column. All errors are InputError
/// with file, line, column and the line.
class CsvTable {
 public:
  /// A column by its position.
  using Column = std::size_t;

  /// Raises InputError: unreadable, no header, a name twice, a row with more or fewer cells.
  explicit CsvTable(std::string path);
  CsvTable(const CsvTable&) = delete;
  CsvTable& operator=(const CsvTable&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::size_t rows() const { return lines_.size() - 1; }
  /// Raises InputError when the header lacks it.
  [[nodiscard]] Column column(std::string_view name) const;
  [[nodiscard]] std::optional<Column> find(std::string_view name) const;

  [[nodiscard]] std::string_view text(std::size_t row, Column column) const {
    return cells_[(row + 1) * columns_ + column];
  }
  /// A whole number from `lo` to `hi`.
  [[nodiscard]] std::int64_t integer(std::size_t row,
                                     Column column,
                                     std::int64_t lo,
                                     std::int64_t hi) const;
  /// A length of time in units of `unit` seconds (1e-6: microseconds), from 0 to one hour.
  [[nodiscard]] Duration duration(std::size_t row, Column column, double unit) const;
  /// The same with a sign.
  [[nodiscard]] Duration signed_duration(std::size_t row, Column column, double unit) const;
  /// A point in time, 0 or later; Unix time fits.
  [[nodiscard]] Duration time(std::size_t row, Column column, double unit) const;

  /// Line of a row in the file, from 1.
  [[nodiscard]] int line(std::size_t row) const { return lines_[row + 1]; }
  /// Raises InputError at this cell: "file:line:column: error: name: message".
  [[noreturn]] void fail(std::size_t row, Column column, const std::string& message) const;

 private:
  [[nodiscard]] double number(std::size_t row, Column column) const;
  [[noreturn]] void fail_in_header(const std::string& message) const;

  std::string path_;
  std::string text_;
  std::size_t columns_ = 0;
  std::vector<std::string_view> cells_;  ///< [line][column], the header first; into text_.
  std::vector<int> lines_;               ///< [line] number in the file.
};

}  // namespace stepsim

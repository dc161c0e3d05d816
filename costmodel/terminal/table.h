#pragma once

#include <string>
#include <vector>

#include "costmodel/terminal/bars.h"
#include "costmodel/terminal/paint.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// A text table with two blanks between columns. Numbers are right-aligned; the first column and
/// columns of words are left-aligned.
///
/// On a terminal the table fits the width: first headers wrap, then the longest column of words
/// wraps, then the remaining columns follow below, again beside the first one.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row, Paint paint = Paint::Plain) {
    rows_.push_back(std::move(row));
    paints_.push_back(paint);
  }
  /// Adds a last column of bars, which takes the room that a terminal has left, if any.
  ///
  /// Args:
  ///     shares: [row], 0 to 1.
  ///     plain: [row] cells of this column where the output is no terminal; empty: no such column.
  void add_bars(std::string title, std::vector<double> shares, std::vector<std::string> plain);
  /// Adds a last column of intervals on one axis, on terminals only. `intervals` is by row.
  void add_intervals(std::string title, std::vector<Interval90> intervals);

  [[nodiscard]] std::string text(const Screen& screen = {}) const;
  [[nodiscard]] const std::vector<std::string>& header() const { return header_; }
  [[nodiscard]] const std::vector<std::vector<std::string>>& rows() const { return rows_; }

 private:
  struct Picture {
    std::string title;
    std::vector<double> shares;
    std::vector<Interval90> intervals;
    std::vector<std::string> plain;
  };

  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<Paint> paints_;  ///< [row]
  std::vector<Picture> pictures_;

  friend class TableLayout;
};

/// Tells whether a column of these cells holds words: no cell begins like a number.
[[nodiscard]] bool is_word_column(const std::vector<std::string>& cells);

}  // namespace stepsim

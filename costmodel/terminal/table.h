#pragma once

#include <string>
#include <vector>

#include "costmodel/terminal/bars.h"
#include "costmodel/terminal/paint.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// A text table, two blanks between columns: numbers right-aligned, the first column and columns of
/// words left-aligned.
///
/// On a terminal it fits the width: headers break at blanks, then the longest column of words does,
/// then the columns that are left over follow below, beside the first one again.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row, Paint paint = Paint::Plain) {
    rows_.push_back(std::move(row));
    paints_.push_back(paint);
  }
  /// A last column of bars, as wide as a terminal leaves room, if it does. `shares`: [row], 0 to 1;
  /// `plain`: [row], what stands there elsewhere, or empty for no such column.
  void add_bars(std::string title, std::vector<double> shares, std::vector<std::string> plain);
  /// The same of intervals on one axis, on terminals alone. `intervals`: [row].
  void add_intervals(std::string title, std::vector<Span90> intervals);

  [[nodiscard]] std::string text(const Screen& screen = {}) const;
  [[nodiscard]] const std::vector<std::string>& header() const { return header_; }
  [[nodiscard]] const std::vector<std::vector<std::string>>& rows() const { return rows_; }

 private:
  struct Picture {
    std::string title;
    std::vector<double> shares;
    std::vector<Span90> intervals;
    std::vector<std::string> plain;
  };

  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<Paint> paints_;  ///< [row]
  std::vector<Picture> pictures_;

  friend class TableLayout;
};

/// Whether a column of these cells is one of words: no cell begins like a number.
[[nodiscard]] bool is_word_column(const std::vector<std::string>& cells);

}  // namespace stepsim

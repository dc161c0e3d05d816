#pragma once

#include <string>
#include <vector>

namespace stepsim {

/// A text table, two blanks between columns: numbers right-aligned, the first column and columns of
/// words left-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] std::string text() const;
  /// As a table of GitHub's Markdown: pipes aligned, cells escaped (markdown_text).
  [[nodiscard]] std::string markdown() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace stepsim

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

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace stepsim

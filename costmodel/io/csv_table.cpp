#include "costmodel/io/csv_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/io/gzip_file.h"

namespace stepsim {

namespace {

/// Appends the cells of a line and returns how many there are.
std::size_t split(std::string_view line, std::vector<std::string_view>& cells) {
  std::size_t count = 0;
  for (std::size_t at = 0; at <= line.size(); ++count) {
    const std::size_t end = std::min(line.find(',', at), line.size());
    cells.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return count;
}

}  // namespace

CsvTable::CsvTable(std::string path) : path_(std::move(path)), text_(read_text_or_gzip(path_)) {
  int number = 0;
  for (std::size_t at = 0; at < text_.size();) {
    const std::size_t end = std::min(text_.find('\n', at), text_.size());
    std::string_view line = std::string_view{text_}.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty()) {
      continue;
    }
    const std::size_t count = split(line, cells_);
    lines_.push_back(number);
    columns_ = lines_.size() == 1 ? count : columns_;
    if (count != columns_) {
      if (text_.starts_with('{')) {
        throw InputError(SourcePlace{path_}, "is JSON, not a table (CSV)");
      }
      throw InputError({path_, number, 0, std::string(line)},
                       fmt::format("the row has {} cells, the header has {}", count, columns_));
    }
  }
  if (lines_.empty()) {
    throw InputError(SourcePlace{path_}, "empty; expected a CSV file with a header line");
  }
  for (Column c = 0; c < columns_; ++c) {
    if (find(cells_[c]) != c) {
      fail_in_header(fmt::format("two columns named '{}'", printable(cells_[c])));
    }
  }
}

std::optional<CsvTable::Column> CsvTable::find(std::string_view name) const {
  const auto end = cells_.begin() + static_cast<std::ptrdiff_t>(columns_);
  const auto found = std::find(cells_.begin(), end, name);
  if (found == end) {
    return std::nullopt;
  }
  return static_cast<Column>(found - cells_.begin());
}

CsvTable::Column CsvTable::column(std::string_view name) const {
  const auto found = find(name);
  if (!found) {
    fail_in_header(fmt::format("column '{}' is missing", name));
  }
  return *found;
}

std::int64_t CsvTable::integer(std::size_t row,
                               Column column,
                               std::int64_t lo,
                               std::int64_t hi) const {
  const std::string_view cell = text(row, column);
  const auto value = parse_number<std::int64_t>(cell);
  if (!value) {
    fail(row, column, fmt::format("expected a whole number, not '{}'", printable(cell)));
  }
  if (*value < lo || *value > hi) {
    fail(row, column, fmt::format("must be from {} to {}", lo, hi));
  }
  return *value;
}

double CsvTable::number(std::size_t row, Column column) const {
  const std::string_view cell = text(row, column);
  const auto value = parse_number<double>(cell);
  if (!value || !std::isfinite(*value)) {
    fail(row, column, fmt::format("expected a number, not '{}'", printable(cell)));
  }
  return *value;
}

double CsvTable::real(std::size_t row, Column column, double lo, double hi) const {
  const double value = number(row, column);
  if (!(value >= lo && value <= hi)) {
    fail(row, column, fmt::format("expected {:g} to {:g}", lo, hi));
  }
  return value;
}

Duration CsvTable::signed_duration(std::size_t row, Column column, double unit) const {
  constexpr double kLongest = 3600;
  const double seconds = number(row, column) * unit;
  if (std::abs(seconds) > kLongest) {
    fail(row, column, "more than one hour");
  }
  return seconds < 0 ? -to_duration(-seconds) : to_duration(seconds);
}

Duration CsvTable::duration(std::size_t row, Column column, double unit) const {
  const Duration value = signed_duration(row, column, unit);
  if (value < Duration::zero()) {
    fail(row, column, "less than 0");
  }
  return value;
}

Duration CsvTable::time(std::size_t row, Column column, double unit) const {
  constexpr double kLatest = 4e9;  // Unix time of the year 2096, in seconds.
  const double seconds = number(row, column) * unit;
  if (seconds < 0 || seconds > kLatest) {
    fail(row, column, "must be 0 or more, and before the year 2096 as Unix time");
  }
  return to_duration(seconds);
}

void CsvTable::fail(std::size_t row, Column column, const std::string& message) const {
  const std::string_view first = text(row, 0);
  const std::string_view last = text(row, columns_ - 1);
  const std::string line(first.data(), last.data() + last.size());
  throw InputError(
      {path_, lines_[row + 1], static_cast<int>(text(row, column).data() - first.data()) + 1, line},
      fmt::format("{}: {}", printable(cells_[column]), message));
}

void CsvTable::fail_in_header(const std::string& message) const {
  const std::string_view last = cells_[columns_ - 1];
  throw InputError(
      {path_, lines_.front(), 0, std::string(cells_.front().data(), last.data() + last.size())},
      message);
}

}  // namespace stepsim

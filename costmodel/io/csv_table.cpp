#include "costmodel/io/csv_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/base/trimmed.h"
#include "costmodel/io/gzip_file.h"

namespace stepsim {

/// Appends the cells of a line and returns how many there are.
std::size_t CsvTable::add_cells(const Line& line) {
  std::size_t count = 0;
  for (std::size_t at = 0; at <= line.text.size(); ++count) {
    const std::size_t first = line.text.find_first_not_of(" \t", at);
    if (first != std::string_view::npos && line.text[first] == '"') {
      at = add_quoted_cell(line, first);
      continue;
    }
    const std::size_t end = std::min(line.text.find(',', at), line.text.size());
    cells_.push_back(trimmed(line.text.substr(at, end - at)));
    places_.push_back(static_cast<int>(std::min(first, end)) + 1);
    at = end + 1;
  }
  return count;
}

/// Appends the cell whose quote stands at this place, and returns where the next one begins.
std::size_t CsvTable::add_quoted_cell(const Line& line, std::size_t quote) {
  const auto fail = [&](std::size_t at, const char* message) {
    throw InputError({path_, line.number, static_cast<int>(at) + 1, std::string(line.text)},
                     message);
  };
  std::string cell;
  std::size_t begin = quote + 1;
  std::size_t end = line.text.find('"', begin);
  while (end != std::string_view::npos && line.text.substr(end).starts_with("\"\"")) {
    cell += line.text.substr(begin, end + 1 - begin);
    begin = end + 2;
    end = line.text.find('"', begin);
  }
  if (end == std::string_view::npos) {
    fail(quote, "the quote does not end on its line");
  }
  if (cell.empty()) {
    cells_.push_back(line.text.substr(begin, end - begin));
  } else {
    cells_.push_back(unquoted_.emplace_back(cell.append(line.text.substr(begin, end - begin))));
  }
  places_.push_back(static_cast<int>(quote) + 1);
  const std::size_t comma = line.text.find_first_not_of(" \t", end + 1);
  if (comma == std::string_view::npos) {
    return line.text.size() + 1;
  }
  if (line.text[comma] != ',') {
    fail(comma, "expected a comma behind the quote");
  }
  return comma + 1;
}

CsvTable::CsvTable(std::string path) : path_(std::move(path)), text_(read_text_or_gzip(path_)) {
  const std::string_view text = without_byte_order_mark(text_);
  if (text.find('\0') != std::string_view::npos) {
    throw InputError(SourcePlace{path_}, "is no text, and no table (CSV)");
  }
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (trimmed(line).empty()) {
      continue;
    }
    if (text.starts_with('{') || text.starts_with('[')) {
      throw InputError(SourcePlace{path_}, "is JSON, not a table (CSV)");
    }
    lines_.push_back({number, line});
    const std::size_t count = add_cells(lines_.back());
    if (lines_.size() == 1 && count == 1) {
      check_separator();
    }
    columns_ = lines_.size() == 1 ? count : columns_;
    if (count != columns_) {
      throw InputError({path_, number, 0, std::string(line)},
                       fmt::format("the row has {} cells, the header has {}", count, columns_));
    }
    const auto row = cells_.end() - static_cast<std::ptrdiff_t>(count);
    if (lines_.size() > 1 && std::equal(row, cells_.end(), cells_.begin())) {
      throw InputError({path_, number, 0, std::string(line)},
                       "the header comes a second time: several tables in one file; give each a "
                       "file of its own");
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

/// Raises InputError where a header of one cell holds what spreadsheets put in a comma's place.
void CsvTable::check_separator() const {
  const Line& line = lines_.front();
  const std::string_view header = trimmed(line.text);
  const std::size_t at = header.find_first_of(";\t");
  if (at == std::string_view::npos || header.find('"') != std::string_view::npos) {
    return;
  }
  throw InputError({path_, line.number, 0, std::string(line.text)},
                   fmt::format("the columns are separated by {}, where commas are wanted, and "
                               "points in numbers: save the table as CSV with commas",
                               header[at] == ';' ? "';'" : "tabs"));
}

std::optional<CsvTable::Column> CsvTable::find(std::string_view name) const {
  const auto end = cells_.begin() + static_cast<std::ptrdiff_t>(columns_);
  const auto found = std::find(cells_.begin(), end, name);
  if (found == end) {
    return std::nullopt;
  }
  return static_cast<Column>(found - cells_.begin());
}

void CsvTable::require_known(std::span<const std::string> known) const {
  for (Column c = 0; c < columns_; ++c) {
    const std::string name(cells_[c]);
    if (std::ranges::find(known, name) == known.end()) {
      const Line& line = lines_.front();
      throw InputError({path_, line.number, places_[c], std::string(line.text)},
                       unknown_name("column", name, known));
    }
  }
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
  const Line& line = lines_[row + 1];
  const int place = places_[(row + 1) * columns_ + column];
  throw InputError({path_, line.number, place, std::string(line.text)},
                   fmt::format("{}: {}", printable(cells_[column]), message));
}

void CsvTable::fail_in_header(const std::string& message) const {
  const Line& line = lines_.front();
  throw InputError({path_, line.number, 0, std::string(line.text)}, message);
}

}  // namespace stepsim

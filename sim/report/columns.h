#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/table.h"

namespace stepsim {

/// How a table writes a figure. The page has a function for each
/// (sim/report/html/script/format.js).
enum class FigureFormat {
  Words,                  ///< As they stand.
  Milliseconds,           ///< "12.345"
  SignedMilliseconds,     ///< "+12.345"
  Whole,                  ///< "12345"
  Tenths,                 ///< "12.3"
  Hundredths,             ///< "12.34"
  WholePercent,           ///< "12 %"
  Percent,                ///< "12.3 %"
  SignedPercent,          ///< "+12.3 %"
  Interval,               ///< "12.1-13.4": the lower and the upper end.
  TenthsInterval,         ///< "12.1 to 13.4", also of two ends.
  SignedPercentInterval,  ///< "+1.2 to +3.4 %", also of two ends.
  Memory,                 ///< "43.9 GiB", of MiB.
  MeanMilliseconds        ///< "113.8": as many digits as the interval of that width carries.
};

/// "milliseconds", "whole", …
[[nodiscard]] const char* name_of(FigureFormat format);

/// How the terminal's tables write a figure; `high` is the upper end of an interval, of
/// MeanMilliseconds the width of theirs.
[[nodiscard]] std::string figure_text(FigureFormat format, double value, double high = 0);

/// What stands in a column: nothing, a number, or words.
using Cell = std::variant<std::monostate, std::int64_t, double, std::string>;

/// One figure or word of a row of a result, and all the places where it is written. JSON, CSV, the
/// terminal's table and the page's are made from one list of these, so that a new figure is one
/// more line of it.
template <typename Row>
struct Column {
  /// In JSON: "a/b" is member b of object a, "a/0" the first element of list a; null: not there.
  const char* key;
  const char* csv;  ///< Header in CSV; null: not there.
  Cell (*value)(const Row& row);
  const char* heading = nullptr;  ///< In tables; null: tables do not show it.
  FigureFormat format = FigureFormat::Words;
  int place = 0;                            ///< Tables show their columns by rising place.
  Cell (*upper)(const Row& row) = nullptr;  ///< Of an interval; the value is its lower end.
  bool in_terminal = true;                  ///< False: only the page's table shows it.
  bool (*shown)(std::span<const Row> rows) = nullptr;  ///< Whether tables show it; null: always.
  bool in_blank = false;  ///< Whether rows that have no figures show it, too; see value_of().
  /// Whether the terminal's table shows it with --wide alone; null: always.
  bool (*wide)(std::span<const Row> rows) = nullptr;
};

/// For Column::wide.
template <typename Row>
[[nodiscard]] bool if_wide(std::span<const Row> /*rows*/) {
  return true;
}

/// What stands in a column of a row. Rows for which is_blank() holds, where there is such a
/// function, show nothing but the columns that are made for these (Column::in_blank).
template <typename Row>
[[nodiscard]] Cell value_of(const Column<Row>& column, const Row& row) {
  if constexpr (requires { row.is_blank(); }) {
    if (row.is_blank() && !column.in_blank) {
      return {};
    }
  }
  return column.value(row);
}

// What the columns below are made of, one cell at a time.

/// Where nothing stands, JSON has no member.
void put_cell(const char* key, const Cell& cell, Json& json);
[[nodiscard]] std::string csv_cell(const Cell& cell);
/// "-" where nothing stands.
[[nodiscard]] std::string table_cell(FigureFormat format, const Cell& cell, const Cell& upper);

/// The columns that tables show of some rows, by place.
template <typename Row>
[[nodiscard]] std::vector<const Column<Row>*> shown_columns(std::span<const Column<Row>> columns,
                                                            std::span<const Row> rows,
                                                            bool on_page = false,
                                                            bool wide = true) {
  std::vector<const Column<Row>*> shown;
  for (const Column<Row>& column : columns) {
    if (column.heading != nullptr && (on_page || column.in_terminal) &&
        (column.shown == nullptr || column.shown(rows)) &&
        (on_page || wide || column.wide == nullptr || !column.wide(rows))) {
      shown.push_back(&column);
    }
  }
  std::ranges::stable_sort(shown, {}, &Column<Row>::place);
  return shown;
}

/// What the terminal's table shows of a column; a wide one shows means with all their digits.
template <typename Row>
[[nodiscard]] std::string table_cell(const Column<Row>& column, const Row& row, bool wide = false) {
  const Cell value = value_of(column, row);
  if (wide && column.format == FigureFormat::MeanMilliseconds) {
    return table_cell(FigureFormat::Milliseconds, value, Cell());
  }
  const bool has_upper = column.upper != nullptr && !std::holds_alternative<std::monostate>(value);
  return table_cell(column.format, value, has_upper ? column.upper(row) : Cell());
}

/// A row as an object.
template <typename Row>
[[nodiscard]] Json row_json(std::span<const Column<Row>> columns, const Row& row) {
  Json json = Json::object();
  for (const Column<Row>& column : columns) {
    if (column.key != nullptr) {
      put_cell(column.key, value_of(column, row), json);
    }
  }
  return json;
}

/// "name,name": the names of the columns, behind a comma where `before` stands before them.
template <typename Row>
[[nodiscard]] std::string csv_header(std::span<const Column<Row>> columns,
                                     std::string before = "") {
  for (const Column<Row>& column : columns) {
    if (column.csv != nullptr) {
      before += before.empty() ? "" : ",";
      before += column.csv;
    }
  }
  return before + "\n";
}

/// A row's values in the same order.
template <typename Row>
[[nodiscard]] std::string csv_line(std::span<const Column<Row>> columns,
                                   const Row& row,
                                   std::string before = "") {
  bool first = before.empty();
  for (const Column<Row>& column : columns) {
    if (column.csv != nullptr) {
      before += first ? "" : ",";
      before += csv_cell(value_of(column, row));
      first = false;
    }
  }
  return before + "\n";
}

template <typename Row>
[[nodiscard]] std::string csv_text(std::span<const Column<Row>> columns,
                                   std::span<const Row> rows) {
  std::string text = csv_header(columns);
  for (const Row& row : rows) {
    text += csv_line(columns, row);
  }
  return text;
}

/// The terminal's table.
///
/// Args:
///     before: [column] headings, and [row][column] cells, of columns that stand before these.
///     paint: [row]; empty: plain.
template <typename Row>
[[nodiscard]] Table table_of(std::span<const Column<Row>> columns,
                             std::span<const Row> rows,
                             const Screen& screen,
                             const std::vector<Paint>& paint = {},
                             std::vector<std::string> before = {},
                             const std::vector<std::vector<std::string>>& cells_before = {}) {
  const std::vector<const Column<Row>*> shown = shown_columns(columns, rows, false, screen.wide);
  for (const Column<Row>* column : shown) {
    before.emplace_back(column->heading);
  }
  Table table(std::move(before));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::string> cells =
        cells_before.empty() ? std::vector<std::string>() : cells_before[i];
    for (const Column<Row>* column : shown) {
      cells.push_back(table_cell(*column, rows[i], screen.wide));
    }
    table.add(std::move(cells), paint.empty() ? Paint::Plain : paint[i]);
  }
  return table;
}

/// The columns as the page reads them: [{"key", "heading", "format"}, …]. The key of an interval
/// holds both
/// ends; words have no format.
template <typename Row>
[[nodiscard]] Json page_columns(std::span<const Column<Row>> columns, std::span<const Row> rows) {
  Json result = Json::array();
  for (const Column<Row>* column : shown_columns(columns, rows, true)) {
    const std::string key = column->key;
    const bool is_interval =
        column->upper != nullptr && column->format != FigureFormat::MeanMilliseconds;
    Json one = {{"key", is_interval ? key.substr(0, key.rfind('/')) : key},
                {"heading", column->heading}};
    if (column->format != FigureFormat::Words) {
      one["format"] = name_of(column->format);
    }
    result.push_back(std::move(one));
  }
  return result;
}

}  // namespace stepsim

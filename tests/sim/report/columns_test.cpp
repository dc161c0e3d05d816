// One list of columns makes every form of a table.
#include "sim/report/columns.h"

#include <array>
#include <cmath>

#include <doctest/doctest.h>

#include "sim/report/number_text.h"

using namespace stepsim;

namespace {

struct Measured {
  std::string name;
  double ms = 0;
  double high_ms = 0;
  std::int64_t count = 0;
};

bool any_counted(std::span<const Measured> rows) {
  return std::ranges::any_of(rows, [](const Measured& row) { return row.count > 0; });
}

// clang-format off
const Column<Measured> kColumns[] = {
    {"name", "name", [](const Measured& r) -> Cell { return r.name; }, "name", FigureFormat::Words, 10},
    {"ms/0", "low_ms", [](const Measured& r) -> Cell { return r.ms; },
     "interval", FigureFormat::TenthsInterval, 30, [](const Measured& r) -> Cell { return r.high_ms; }},
    {"ms/1", "high_ms", [](const Measured& r) -> Cell { return r.high_ms; }},
    {"count", "count", [](const Measured& r) -> Cell { return r.count > 0 ? Cell(r.count) : Cell(); },
     "count", FigureFormat::Whole, 20, nullptr, true, any_counted},
    {"share", nullptr, [](const Measured& r) -> Cell { return r.ms / 10; },
     "share", FigureFormat::Percent, 40, nullptr, false},
};
// clang-format on

const std::array kRows = {Measured{"a, b", 1.25, 2.5, 3}, Measured{"c", 4, 5, 0}};

}  // namespace

TEST_CASE("columns make JSON, CSV, and tables of their rows") {
  CHECK(row_json<Measured>(kColumns, kRows[0]).dump() ==
        R"({"name":"a, b","ms":[1.25,2.5],"count":3,"share":0.125})");
  CHECK(row_json<Measured>(kColumns, kRows[1]).dump() ==
        R"({"name":"c","ms":[4.0,5.0],"share":0.4})");
  CHECK(csv_text<Measured>(kColumns, kRows) ==
        "name,low_ms,high_ms,count\n\"a, b\",1.25,2.5,3\nc,4,5,\n");
  const Table table = table_of<Measured>(kColumns, kRows, {});
  CHECK(table.header() == std::vector<std::string>{"name", "count", "interval"});
  CHECK(table.rows()[0] == std::vector<std::string>{"a, b", "3", "1.2 to 2.5"});
  CHECK(table.rows()[1] == std::vector<std::string>{"c", "-", "4.0 to 5.0"});
  CHECK(table_of<Measured>(kColumns, std::span(kRows).subspan(1), {}).header().size() == 2);
}

TEST_CASE("some columns are in wide tables alone") {
  const Column<Measured> columns[] = {kColumns[0],
                                      {"count",
                                       "count",
                                       [](const Measured& r) -> Cell { return r.count; },
                                       "count",
                                       FigureFormat::Whole,
                                       20,
                                       nullptr,
                                       true,
                                       any_counted,
                                       false,
                                       if_wide<Measured>}};
  Screen screen;
  CHECK(table_of<Measured>(columns, kRows, screen).header() == std::vector<std::string>{"name"});
  screen.wide = true;
  CHECK(table_of<Measured>(columns, kRows, screen).header().size() == 2);
  CHECK(page_columns<Measured>(columns, kRows).size() == 2);
}

TEST_CASE("a mean has the digits that its interval carries") {
  CHECK(mean_text(24.12345, 18) == "24.1");
  CHECK(mean_text(136.5321, 1) == "136.5");
  CHECK(mean_text(1136.5321, 400) == "1137");
  CHECK(mean_text(136.5321, 0.02) == "136.532");
  CHECK(mean_text(0.12345, 0.1) == "0.123");
  CHECK(mean_text(22.5, 0) == "22.500");
  CHECK(figure_text(FigureFormat::MeanMilliseconds, 24.12345, 18) == "24.1");
}

TEST_CASE("the page learns of the columns that its tables show, those of the terminal and more") {
  const Json columns = page_columns<Measured>(kColumns, kRows);
  CHECK(columns.size() == 4);
  CHECK(columns[0].dump() == R"({"key":"name","heading":"name"})");
  CHECK(columns[2].dump() == R"({"key":"ms","heading":"interval","format":"tenths_interval"})");
  CHECK(columns[3]["key"] == "share");
}

#include "costmodel/io/csv_table.h"

#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "tests/test_data.h"

using namespace stepsim;

namespace {

std::string table_of(const std::string& text) {
  std::string path = test::fresh_folder() + "/table.csv";
  std::ofstream(path) << text;
  return path;
}

/// The message of the error that the cell of the second column in the first row raises as a number.
std::string csv_cell_error(const std::string& text) {
  try {
    const CsvTable table(table_of(text));
    (void)table.real(0, 1, 0, 1);
  } catch (const InputError& error) {
    const std::string message = error.what();
    return message.substr(message.find("table.csv") + 9);
  }
  return "no error";
}

}  // namespace

TEST_CASE("csv: cells with blanks around them, in quotes, and behind a byte order mark") {
  const CsvTable table(
      table_of("\xEF\xBB\xBFname, \"shape\" ,size\r\n"
               "\r\n"
               "a , \"3x4\",\t7\r\n"
               "\"b, c\",\"say \"\"hi\"\" \",\"\"\r\n"
               "d,,\r\n"));
  CHECK(table.column("name") == 0);
  CHECK(table.column("shape") == 1);
  REQUIRE(table.rows() == 3);
  CHECK(table.text(0, 0) == "a");
  CHECK(table.text(0, 1) == "3x4");
  CHECK(table.integer(0, 2, 0, 9) == 7);
  CHECK(table.text(1, 0) == "b, c");
  CHECK(table.text(1, 1) == "say \"hi\" ");
  CHECK(table.text(1, 2).empty());
  CHECK(table.text(2, 1).empty());
  CHECK(table.text(2, 2).empty());
  CHECK(table.line(0) == 3);
  CHECK(table.line(2) == 5);
}

TEST_CASE("csv: errors show the line as it stands, and where the cell is") {
  CHECK(csv_cell_error("a,b\n1, x\n") == ":2:4: error: b: expected a number, not 'x'\n1, x\n   ^");
  CHECK(csv_cell_error("a,b\n1,\"2\"\n") == ":2:3: error: b: expected 0 to 1\n1,\"2\"\n  ^");
  CHECK(csv_cell_error("a,b\n1,\n") == ":2:3: error: b: expected a number, not ''\n1,\n  ^");
  CHECK(csv_cell_error("a,b\n1,\"2\n")
            .starts_with(":2:3: error: the quote does not end on its line"));
  CHECK(csv_cell_error("a,b\n1,\"2\"3\n")
            .starts_with(":2:6: error: expected a comma behind the quote"));
  CHECK(csv_cell_error("a,b\n1,2,3\n")
            .starts_with(":2: error: the row has 3 cells, the header has 2\n1,2,3"));
  CHECK(csv_cell_error("a,b\n1,1\n\na, \"b\"\n2,2\n")
            .starts_with(":4: error: the header comes a second time: several tables in one file"));
  CHECK(csv_cell_error("a, a\n1,2\n").starts_with(":1: error: two columns named 'a'\na, a"));
  CHECK(csv_cell_error("a;b\n1,5;2\n")
            .starts_with(":1: error: the columns are separated by ';', where commas are wanted"));
  CHECK(csv_cell_error("a\tb\n1\t2\n")
            .starts_with(":1: error: the columns are separated by tabs, where commas are wanted"));
  CHECK(CsvTable(table_of("\"a;b\"\n1\n")).rows() == 1);
  CHECK(CsvTable(table_of("a\t\n1\n")).rows() == 1);
  CHECK(csv_cell_error("{\"a\": 1}\n") == ": error: is JSON, not a table (CSV)");
  CHECK(csv_cell_error("\xEF\xBB\xBF") == ": error: empty; expected a CSV file with a header line");
}

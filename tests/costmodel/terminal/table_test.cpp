#include "costmodel/terminal/table.h"

#include <sstream>

#include <doctest/doctest.h>

#include "costmodel/terminal/wrap.h"

using namespace stepsim;

namespace {

Table small_table() {
  Table table({"policy", "step ms", "useful tokens/s"});
  table.add({"fixed", "12.5", "1000"});
  table.add({"a budget", "+7.25", "98765"});
  return table;
}

/// A table as wide as its header of twelve numbers.
Table wide_table() {
  std::vector<std::string> header = {"policy"};
  std::vector<std::string> row = {"fixed"};
  for (int i = 0; i < 12; ++i) {
    header.push_back("column of numbers " + std::to_string(i));
    row.push_back(std::to_string(1000 + i));
  }
  Table table(header);
  table.add(row);
  return table;
}

std::size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::size_t width = 0;
  for (std::string line; std::getline(lines, line);) {
    width = std::max(width, display_width(line));
  }
  return width;
}

Screen table_terminal(int columns) {
  Screen screen;
  screen.columns = columns;
  return screen;
}

}  // namespace

TEST_CASE("numbers are right-aligned, words left-aligned") {
  CHECK(small_table().text() ==
        "policy    step ms  useful tokens/s\n"
        "fixed        12.5             1000\n"
        "a budget    +7.25            98765\n");
}

TEST_CASE("a list of words that begins with a number is a column of words") {
  Table table({"n", "conditions"});
  table.add({"1", "8 GPUs, fp16"});
  table.add({"2", "16 GPUs, none"});
  CHECK(table.text() == "n  conditions\n1  8 GPUs, fp16\n2  16 GPUs, none\n");
}

TEST_CASE("on a table_terminal headers break before columns do, and nothing is lost") {
  CHECK(small_table().text(table_terminal(40)) == small_table().text());
  // Three columns of 8, 7 and 15 with two blanks between fit into 34 just so.
  CHECK(small_table().text(table_terminal(34)) == small_table().text());
  CHECK(small_table().text(table_terminal(33)) != small_table().text());
  const std::string text = small_table().text(table_terminal(28));
  CHECK(text ==
        "           step    useful\n"
        "policy       ms  tokens/s\n"
        "fixed      12.5      1000\n"
        "a budget  +7.25     98765\n");
  // With broken headers they are 25 wide.
  CHECK(small_table().text(table_terminal(25)) == text);
  CHECK(small_table().text(table_terminal(24)) != text);
  for (const int columns : {40, 80, 120, 200}) {
    CAPTURE(columns);
    const std::string wide = wide_table().text(table_terminal(columns));
    CHECK(widest(wide) <= static_cast<std::size_t>(columns));
    for (int i = 0; i < 12; ++i) {
      CHECK(wide.find(std::to_string(1000 + i)) != std::string::npos);
    }
  }
  CHECK(widest(wide_table().text()) > 200);
}

TEST_CASE("the longest words of a narrow table_terminal break within their column") {
  Table table({"n", "why"});
  table.add({"1", "many messages, each of them below the full bandwidth"});
  table.add({"2", "no"});
  CHECK(table.text(table_terminal(40)) ==
        "n  why\n"
        "1  many messages, each of them below the\n"
        "   full bandwidth\n"
        "2  no\n");
}

TEST_CASE("bars take the room that is left on a table_terminal and none elsewhere") {
  Table table({"n", "ms"});
  table.add({"1", "10"});
  table.add({"2", "5"});
  table.add_bars("bar", {1, 0.5}, {});
  CHECK(table.text() == "n  ms\n1  10\n2   5\n");
  const std::string hashes(34, '#');
  CHECK(table.text(table_terminal(41)) ==
        "n  ms  bar\n1  10  " + hashes + "\n2   5  " + hashes.substr(0, 17) + "\n");
  CHECK(table.text(table_terminal(20)) == table.text());
  Table plain({"n"});
  plain.add({"1"});
  plain.add_bars("", {1}, {"##"});
  CHECK(plain.text() == "n\n1  ##\n");
}

TEST_CASE("intervals share one axis and go below the table where it has no room") {
  Table table({"policy", "step ms"});
  table.add({"a", "10"});
  table.add({"b", "5"});
  table.add_intervals("speed", {{0, 5, 10}, {10, 10, 20}});
  CHECK(table.text(table_terminal(38)) ==
        "policy  step ms  speed\n"
        "a            10  |----o----|\n"
        "b             5            o---------|\n");
  CHECK(table.text(table_terminal(26)).find("\n\npolicy  speed\n") != std::string::npos);
}

TEST_CASE("colour is around whole lines and takes no width") {
  Screen screen = table_terminal(80);
  screen.colour = true;
  Table table({"policy"});
  table.add({"fixed"}, Paint::Good);
  CHECK(printed(table.text(screen), screen) == "\x1b[1mpolicy\x1b[0m\n\x1b[32mfixed\x1b[0m\n");
  CHECK(display_width(painted("fixéd", Paint::Good, screen)) == 5);
}

TEST_CASE("a list is broken behind its commas alone") {
  using Lines = std::vector<std::string>;
  const Lines items = {"optimizer 511 MiB", "buckets 255 MiB", "copies of weights 82.1 MiB"};
  CHECK(wrapped_list(items, 35) ==
        Lines{"optimizer 511 MiB, buckets 255 MiB,", "copies of weights 82.1 MiB"});
  CHECK(wrapped_list(items, 20) ==
        Lines{"optimizer 511 MiB,", "buckets 255 MiB,", "copies of weights 82.1 MiB"});
  CHECK(wrapped_list(items, 200) ==
        Lines{"optimizer 511 MiB, buckets 255 MiB, copies of weights 82.1 MiB"});
  CHECK(wrapped_list({}, 20).empty());
}

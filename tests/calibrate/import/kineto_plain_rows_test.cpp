// Do rows that simdjson reads say what the parser of repaired traces says of them?
#include "calibrate/import/kineto/kineto_plain_rows.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/io/gzip_file.h"
#include "costmodel/io/json_lines.h"
#include "tests/calibrate/import/told_of_trace.h"
#include "tests/costmodel/helpers.h"
#include "tests/fuzz/mutations.h"
#include "tests/source_root.h"

namespace stepsim {
namespace {

/// Checks a trace; returns whether it was read.
bool check_file(const std::string& path) {
  const std::string expected = test::told_of_trace(path, KinetoParser::Tolerant);
  CHECK(test::told_of_trace(path, KinetoParser::Fast) == expected);
  return expected.ends_with("no error");
}

bool check(const std::string& text) {
  CAPTURE(text.substr(0, 4000));
  return check_file(test::written("trace.json", text));
}

std::string row(int number) {
  return fmt::format(
      R"({{"ph": "X", "cat": "kernel", "name": "k{0}", "pid": 0, "tid": 7, "ts": {0}.125, "dur": {0},)"
      R"( "args": {{"correlation": {0}, "stream": 7, "est": {{"x": [1.5, null, true]}}, "Input Dims": [[2, 3], []]}}}})",
      number);
}

/// A trace of `before` rows, then these, then `after` rows.
std::string trace(const std::string& rows, int before, int after) {
  std::vector<std::string> all;
  for (int i = 0; i < before; ++i) {
    all.push_back(row(i));
  }
  all.push_back(rows);
  for (int i = 0; i < after; ++i) {
    all.push_back(row(before + i));
  }
  return fmt::format(
      "{{\"distributedInfo\": {{\"rank\": 1}}, \"traceEvents\": [\n{}\n], "
      "\"baseTimeNanoseconds\": 5}}",
      fmt::join(all, ",\n"));
}

/// Counts the rows that it is told of.
class Counter : public KinetoClient {
 public:
  [[nodiscard]] int rows() const { return rows_; }
  void open_object() override { ++depth_; }
  void close_object() override { rows_ += --depth_ == 0 ? 1 : 0; }
  void open_list() override {}
  void close_list() override {}
  void name_member(std::string_view /*name*/) override {}
  [[nodiscard]] bool takes_value() const override { return true; }
  void take(std::string_view /*value*/, KinetoValue /*kind*/) override {}

 private:
  int depth_ = 0;
  int rows_ = 0;
};

/// A row with `value` as one of its members' values.
std::string with(const std::string& key, const std::string& value) {
  return fmt::format(
      R"({{"ph": "X", "cat": "cpu_op", "name": "n", "ts": 1, "dur": 2, "{}": {}}})", key, value);
}

}  // namespace

TEST_CASE("kineto, plain rows: all rows but the last, up to one that is not plain") {
  for (const auto& [odd, count] : {std::pair(row(3), 5), std::pair(with("ts", "1e3"), 3)}) {
    std::string text = ", " + row(0) + " ,\n" + row(1) + "," + row(2) + "," + odd + "," + row(4);
    const std::string unread = "," + (count == 5 ? row(5) : odd + "," + row(4) + "," + row(5));
    text += "," + row(5) + "]";
    const std::string before = text;
    text.reserve(text.size() + kJsonPadding);
    Counter client;
    const std::size_t read = KinetoPlainRows().read(text, client);
    CHECK(client.rows() == count);
    CHECK(text.substr(read) == unread + "]");
    CHECK(text == before);
  }
}

TEST_CASE("kineto, plain rows: recorded traces are read the same") {
  int traces = 0;
  for (const std::string& folder : {test::source_root() + "/tests/calibrate/import/traces",
                                    test::source_root() + "/tests/fuzz/corpus/kineto",
                                    test::data_folder() + "/traces"}) {
    if (!std::filesystem::exists(folder)) {
      continue;
    }
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string path = file.path();
      if (path.ends_with(".json") || path.ends_with(".json.gz")) {
        CAPTURE(path);
        traces += check_file(path) ? 1 : 0;
      }
    }
  }
  CHECK(traces > 2);
}

TEST_CASE("kineto, plain rows: odd values are read, or refused, as by the repairing parser") {
  int read = 0;
  for (const char* value : {"-0",
                            "-0.0",
                            "01",
                            "1.",
                            ".5",
                            "-",
                            "+1",
                            "1e3",
                            "1E-2",
                            "1e400",
                            "1.5e400",
                            "123456789012345678",
                            "1234567890123456789",
                            "18446744073709551615",
                            "18446744073709551616",
                            "1234567890123456.7891",
                            "0.1234567890123456789012345678901234567890123",
                            "NaN",
                            "N/A",
                            "-Infinity",
                            "nul",
                            "nullx",
                            "true",
                            "truefalse",
                            "\"\"",
                            "\"a\\\"b\\\\c\\n\\/\"",
                            "\"\\u00e9\\ud83d\\ude00\"",
                            "\"\\ud800\"",
                            "\"\\x41\"",
                            "\"caf\xc3\xa9\"",
                            "\"\xff\xfe\"",
                            "\"tab\there\"",
                            "\"line\nhere\"",
                            "\"}, {\"",
                            "\"unclosed",
                            "\"a\" \"b\"",
                            "\"a\"b",
                            "\"a\": 1",
                            "\"a\" : [[2, 3], []]",
                            "[\"a\": 1]",
                            "{\"b\": \"a\": {\"c\": 1}}",
                            "1: 2",
                            "[1]: 2",
                            "[1, [2, \"x\"], {\"y\": []}]",
                            "[1,, 2]",
                            "[1, 2",
                            "[1 2]",
                            "[{\"a\": 1}, {\"b\": 2}]",
                            "{\"a\" 1}",
                            "{\"a\": 1,}",
                            "{a: 1}",
                            "{1: 1}",
                            "{\"correlation\": 5, \"correlation\": 6}",
                            "{\"stre\\u0061m\": 5}",
                            "{\"Process Group Ranks\": [0, 1, -1], \"Seq\": \"12\"}",
                            "1} {",
                            "1}, {",
                            "1}]",
                            "}",
                            "/**/ 1"}) {
    for (const char* key : {"ts", "name", "args", "other", "ph\\u0020"}) {
      CAPTURE(key);
      CAPTURE(value);
      read += check(trace(with(key, value), 3, 3)) ? 1 : 0;
    }
  }
  CHECK(read > 60);
  for (const std::string& rows :
       {std::string("null"),
        std::string("[1, 2]"),
        std::string("{}"),
        std::string("{\"name\": \"no phase\"}"),
        std::string(""),
        std::string("\xef\xbb\xbf{}"),
        "{\"args\": " + std::string(60, '[') + std::string(60, ']') + "}",
        "{\"args\": " + std::string(99, '[') + std::string(99, ']') + "}",
        with("name", "\"" + std::string(5000, 'x') + "\""),
        with("args", "{\"dtype\": \"" + std::string(5000, 'x') + "\"}")}) {
    check(trace(rows, 0, 3));
    check(trace(rows, 3, 0));
    check(trace(rows, 30, 30));
  }
}

TEST_CASE("kineto, plain rows: rows across the chunks of a file, some not plain") {
  std::string rows;
  for (int i = 0; i < 4000; ++i) {
    const bool odd = i % 97 == 0;
    rows += (i > 0 ? i % 3 == 0 ? "\r\n , " : ",\n" : "") +
            (odd ? with("name", i % 2 == 0 ? "\"caf\xc3\xa9 \\u00e9\"" : "\"\xff\"") : row(i));
  }
  CHECK(rows.size() > std::size_t{3} << 18);
  CHECK(check(trace(rows, 0, 3)));
  const std::string long_name = with("name", "\"" + std::string(std::size_t{1} << 20, 'x') + "\"");
  CHECK(check(trace(rows + ",\n" + long_name + ",\n" + rows, 3, 3)));
  // Cut short, and damaged in the middle.
  CHECK_FALSE(check(trace(rows, 0, 3).substr(0, rows.size() / 2)));
  CHECK_FALSE(check(trace(rows.substr(0, rows.size() / 2) + "x" + rows, 0, 3)));
}

/// Checks mutations of traces; returns how many of them were read.
int check_mutated(const std::vector<std::string>& seeds) {
  fuzz::Mutations mutated(seeds);
  int read = 0;
  for (int i = 0; i < 400; ++i) {
    read += check(mutated.next()) ? 1 : 0;
  }
  return read;
}

TEST_CASE("kineto, plain rows: mutated traces are read, or refused, as by the repairing parser") {
  CHECK(check_mutated({trace(with("name", "\"n\""), 8, 8),
                       "[" + row(0) + ", " + row(1) + ", " + row(2) + "]"}) > 20);
}

TEST_CASE("kineto, plain rows: mutations of a recorded trace, too") {
  const auto recorded = test::data_file("traces/resnet50_2xA100_rank0/rank0.pt.trace.json.gz");
  if (!recorded) {
    return;
  }
  std::string beginning = read_text_or_gzip(*recorded).substr(0, 20000);
  beginning.resize(beginning.rfind("},\n") + 1);
  CHECK(check_mutated({beginning + "]}", trace(with("name", "\"n\""), 8, 8)}) > 20);
}

}  // namespace stepsim

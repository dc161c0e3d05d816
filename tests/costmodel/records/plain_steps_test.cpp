// Do rows of a run record that simdjson reads say what JsonReader says of them?
#include <filesystem>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/io/json_lines.h"
#include "costmodel/io/json_row.h"
#include "costmodel/records/run_record.h"
#include "tests/costmodel/helpers.h"
#include "tests/fuzz/mutations.h"
#include "tests/source_root.h"

namespace stepsim {
namespace {

constexpr const char* kFormat = "stepsim-run-record/1";

/// The steps of a record, each as one line, or the error, and what was warned of.
std::string read(const std::string& path) {
  std::vector<std::string> warnings;
  std::string text;
  const std::string error = test::error_of([&] {
    for (const StepRecord& step : read_run_record(path, &warnings).steps) {
      text += step_json(step) + "\n";
    }
  });
  return fmt::format("{}{}\nwarnings: {}", text, error, warnings.size());
}

/// The same with JsonReader alone.
std::string read_by_reader(const std::string& path) {
  std::string text;
  bool dropped = false;
  const std::string error = test::error_of([&] {
    JsonLines lines(path, CutLine::Drop);
    JsonReader header = lines.header(kFormat);
    const int ranks = header.integer_in("world_size", 1, kMaxInt);
    std::string steps;
    std::set<std::tuple<int, int, int>> seen;
    while (lines.next()) {
      const StepRecord step = read_step(lines.reader(), ranks);
      if (!seen.emplace(step.repeat, step.step, step.rank).second) {
        lines.fail(fmt::format(
            "step {} of rank {} is there twice (repeat {})", step.step, step.rank, step.repeat));
      }
      steps += step_json(step) + "\n";
    }
    dropped = lines.dropped_cut_line();
    text = std::move(steps);
  });
  return fmt::format("{}{}\nwarnings: {}", text, error, dropped ? 1 : 0);
}

/// Checks a record; returns whether it was read.
bool check(const std::string& text) {
  const std::string path = test::written("run.jsonl", text);
  const std::string expected = read_by_reader(path);
  CAPTURE(text);
  CHECK(read(path) == expected);
  return expected.find("no error") != std::string::npos;
}

/// The header and the first rows of a record.
std::string beginning(const std::string& text, int lines) {
  std::size_t end = 0;
  for (int i = 0; i < lines && end != std::string::npos; ++i) {
    end = text.find('\n', end + 1);
  }
  return end == std::string::npos ? text : text.substr(0, end + 1);
}

std::vector<std::string> shipped_records() {
  std::vector<std::string> records;
  for (const char* folder :
       {"scenarios/tour", "tests/fuzz/corpus/run_record", "tests/fuzz/found/run_record"}) {
    for (const auto& file :
         std::filesystem::directory_iterator(test::source_root() + "/" + folder)) {
      if (file.path().extension() == ".jsonl") {
        records.push_back(test::content(file.path()));
      }
    }
  }
  std::ranges::sort(records);
  return records;
}

constexpr const char* kHeader = "{\"format\": \"stepsim-run-record/1\", \"world_size\": 2}\n";

/// A row, in which `changes` replace parts.
std::string row(const std::vector<std::pair<std::string, std::string>>& changes = {}) {
  return test::replaced(
      R"({"repeat":0,"step":1,"rank":1,"samples":8,"max_length":64,"useful_tokens":300,)"
      R"("padded_tokens":512,"start_ms":12.5,"data_ms":1,"forward_ms":2.25,"backward_ms":4,)"
      R"("wait_ms":0.5,"optimizer_ms":1e0,"step_ms":9,"lengths":[64,1],"loss":null,)"
      R"("buckets":[{"bytes":1048576,"launch_ms":3,"end_ms":4.75}],"other":{"a":[1,{}]}})"
      "\n",
      changes);
}

}  // namespace

TEST_CASE("run record: the tour's rows are plain, and say what JsonReader says") {
  for (const std::string& record : shipped_records()) {
    check(record);
  }
  const std::string tour = test::content(test::source_root() + "/scenarios/tour/bucketed.jsonl");
  JsonLines lines(test::written("tour.jsonl", tour), CutLine::Refuse);
  (void)lines.header(kFormat);
  JsonRowParser parser;
  int rows = 0;
  for (; lines.next_line(); ++rows) {
    CHECK(parser.parse(lines.text()).has("step_ms"));
  }
  CHECK(rows > 90);
}

TEST_CASE("run record: odd rows are read, or refused, as by JsonReader") {
  CHECK(check(kHeader + row()));
  int read = 0;
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"samples\":8", "\"samples\":8.0"},
           {"\"samples\":8", "\"samples\":8e0"},
           {"\"samples\":8", "\"samples\":8.5"},
           {"\"samples\":8", "\"samples\":-0"},
           {"\"samples\":8", "\"samples\":-1"},
           {"\"samples\":8", "\"samples\":\"8\""},
           {"\"samples\":8", "\"samples\":1125899906842625"},
           {"\"samples\":8", "\"samples\":9223372036854775808"},
           {"\"samples\":8", "\"samples\":18446744073709551616"},
           {"\"samples\":8", "\"samples\":08"},
           {"\"samples\":8", "\"samples\":8,\"samples\":9"},
           {"\"other\"", "\"step\""},
           {"\"other\"", "\"format\""},
           {"\"other\"", "\"st\\u0065p_ms\""},
           {"\"other\"", "\"\\ud800\""},
           {"\"other\"", "\"\xff\""},
           {"\"other\"", "\"\xc3\xa9\""},
           {"\"a\":[1,{}]", "\"a\":1,\"a\":2"},
           {"\"bytes\":1048576", "\"bytes\":1,\"bytes\":2"},
           {"\"bytes\":1048576", "\"bytes\":null"},
           {"\"max_length\":64", "\"max_length\":1073741825"},
           {"\"useful_tokens\":300", "\"useful_tokens\":513"},
           {"\"rank\":1", "\"rank\":2"},
           {"\"rank\":1", "\"rank\":true"},
           {"\"step\":1,", ""},
           {"\"wait_ms\":0.5,", ""},
           {"\"loss\":null", "\"loss\":0.1"},
           {"\"loss\":null", "\"loss\":NaN"},
           {"\"loss\":null", "\"loss\":1e400"},
           {"\"loss\":null", "\"loss\":-1e-400"},
           {"\"loss\":null", "\"loss\":123456789012345678901234567890.5"},
           {"\"loss\":null", "\"loss\":2.2250738585072011e-308"},
           {"\"loss\":null", "\"forward_host_ms\":1"},
           {"\"loss\":null", "\"micro_batches\":2,\"micro_batch_samples\":[3,5]"},
           {"\"loss\":null",
            "\"micro_batches\":2,\"micro_batch_samples\":[3,5],\"micro_batch_max_lengths\":[4,9]"},
           {"\"loss\":null", "\"gathers\":[{\"unit\":0,\"launch_ms\":2,\"end_ms\":1}]"},
           {"\"data_ms\":1", "\"data_ms\":3.6e6"},
           {"\"data_ms\":1", "\"data_ms\":3600001"},
           {"\"data_ms\":1", "\"data_ms\":1e"},
           {"\"data_ms\":1", "\"data_ms\":1/*c*/"},
           {"[64,1]", "[64,0]"},
           {"[64,1]", "[64,1.0]"},
           {"[64,1]", "{}"},
           {"[1,{}]", std::string(40, '[') + std::string(40, ']')},
           {"[1,{}]", std::string(99, '[') + std::string(99, ']')},
           {"}\n", "}\r\n"},
           {"}\n", "} \t\n"},
           {"]}}\n", "]}} x\n"},
           {"]}}\n", "]}}"},
           {"]}}\n", "]}"},
           {"]}}\n", std::string("]}}\0\n", 5)},
           {"{\"repeat\"", "\xef\xbb\xbf{\"repeat\""},
           {"{\"repeat\"", "\n \t\n{\"repeat\""},
           {"{\"repeat\"", "[{\"repeat\""}}) {
    CAPTURE(to);
    read += check(kHeader + row({{from, to}})) ? 1 : 0;
    read += check(kHeader + row({{from, to}}) + row({{"\"rank\":1", "\"rank\":0"}})) ? 1 : 0;
  }
  CHECK(read > 20);
}

TEST_CASE("run record: mutated rows are read, or refused, as by JsonReader") {
  std::vector<std::string> seeds = {kHeader + row()};
  for (const std::string& record : shipped_records()) {
    // Headers that describe a model are long, and no rows.
    if (const std::size_t rows = record.find('\n'); rows != std::string::npos) {
      seeds.push_back(kHeader + beginning(record.substr(rows + 1), 2));
    }
  }
  fuzz::Mutations mutated(seeds);
  int read = 0;
  for (int i = 0; i < 400; ++i) {
    read += check(mutated.next()) ? 1 : 0;
  }
  CHECK(read > 20);
}

}  // namespace stepsim

#include "sim/replay/launch_trace.h"

#include <fstream>

#include <doctest/doctest.h>

#include "sim/replay/launch_replay.h"
#include "tests/costmodel/helpers.h"
#include "tests/sim/replay/replay_files.h"

using namespace stepsim;

namespace {

/// The message for a program of these rows behind a good row of each rank.
std::string error_for(const std::string& rows) {
  test::LaunchFiles files;
  files.rows = "0,0,1,cpu,,,,\n1,0,1,cpu,,,,\n" + rows;
  return test::error_of([&] { (void)read_launch_trace(CsvTable(files.written())); });
}

std::string error_of_files(const test::LaunchFiles& files) {
  return test::error_of([&] { (void)read_launch_trace(CsvTable(files.written())); });
}

bool holds(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an error in a cell shows file, line, column and the line") {
  const std::string text = error_for("0,0,x,cpu,,,,\n");
  CHECK(holds(text,
              "program.csv:4:5: error: cpu_dur_us: expected a number, not 'x'\n"
              "0,0,x,cpu,,,,\n"
              "    ^"));
}

TEST_CASE("cells of the wrong kind are refused") {
  CHECK(holds(error_for("0,0,1,gup,7,1,,\n"), "unknown type 'gup'; did you mean 'gpu'?"));
  CHECK(holds(error_for("2,0,1,cpu,,,,\n"), "rank: must be from 0 to 1"));
  CHECK(holds(error_for("0,0,-1,cpu,,,,\n"), "cpu_dur_us: less than 0"));
  CHECK(holds(error_for("0,0,nan,cpu,,,,\n"), "expected a number"));
  CHECK(holds(error_for("0,0,1e300,cpu,,,,\n"), "more than one hour"));
  CHECK(holds(error_for("0,0,1,gpu,,1,,\n"), "stream: a row that uses the GPU must name"));
  CHECK(holds(error_for("0,0,1,cpu\n"),
              "program.csv:4: error: the row has 4 cells, the header has 8"));
}

TEST_CASE("a gap may take back what the row before took, not more") {
  CHECK(error_for("0,-1,1,cpu,,,,\n") == "no error");
  CHECK(holds(error_for("0,-1.1,1,cpu,,,,\n"), "gap_us: overlaps the previous call by more"));
}

TEST_CASE("eight streams are the most, those of the producers among them") {
  std::string rows;
  for (const char* stream : {"1", "2", "3", "4", "5", "6", "8"}) {  // 7 is a producer's.
    rows += fmt::format("0,0,1,gpu,{},1,,\n", stream);
  }
  CHECK(error_for(rows) == "no error");
  CHECK(holds(error_for(rows + "0,0,1,gpu,9,1,,\n"), ":11:11: error: stream: more than 8"));
}

TEST_CASE("collectives that are unknown, launched twice or waited for too early are refused") {
  CHECK(holds(error_for("0,0,1,nccl,20,1,,2\n"), "collective: unknown collective 2"));
  CHECK(holds(error_for("0,0,1,gpu,7,1,0,\n"), "this rank has not launched collective 0 yet"));
  CHECK(holds(error_for("0,0,1,nccl,20,1,,0\n0,0,1,nccl,20,1,,0\n"),
              ":5:18: error: collective: rank 0 launches collective 0 twice"));
}

TEST_CASE("ranks that launch collectives in different orders are refused with the line") {
  const std::string zero = "0,0,1,nccl,20,1,,0\n0,0,1,nccl,20,1,,1\n";
  CHECK(error_for(zero + "1,0,1,nccl,20,1,,0\n1,0,1,nccl,20,1,,1\n") == "no error");
  CHECK(holds(error_for(zero + "1,0,1,nccl,20,1,,1\n"),
              ":6:18: error: collective: rank 1 launches collective 1 where another rank launches "
              "0; they would wait for ever"));
  CHECK(holds(error_for(zero + "1,0,1,nccl,20,1,,0\n"),
              "rank 1 launches 1 collectives where another rank launches 2"));
}

TEST_CASE("nothing comes after the end, and every rank has rows") {
  CHECK(holds(error_for("0,0,0,end,,,,\n0,0,1,cpu,,,,\n"), "rank 0 has already ended its step"));
  test::LaunchFiles files;
  files.rows = "1,0,1,cpu,,,,\n";
  CHECK(holds(error_of_files(files), "rank 0 has no rows"));
}

TEST_CASE("missing columns and files are named") {
  test::LaunchFiles files;
  files.header = "rank,cpu_dur_us,type,stream,gpu_dur_us,waits_collective,collective\n";
  CHECK(holds(error_of_files(files), "program.csv:1: error: column 'gap_us' is missing\nrank,"));
  files.header = "rank,rank\n";
  CHECK(holds(error_of_files(files), "two columns named 'rank'"));
  files.header = "";
  CHECK(holds(error_of_files(files), "program.csv: error: empty"));
  files = {};
  files.ranks = "rank,step_start_us\n1,0\n";
  CHECK(holds(error_of_files(files), "ranks.csv:2:1: error: rank: expected 0"));
  files.ranks = "rank,step_start_us\n0,-1\n";
  CHECK(holds(error_of_files(files), "step_start_us: must be 0 or more"));
  files.ranks = "rank,step_start_us,step_dur_us\n0,0,0\n";
  CHECK(holds(error_of_files(files), "step_dur_us: must be above 0"));
  const std::string lonely = test::written("program.csv", test::LaunchFiles().header);
  CHECK(holds(test::error_of([&] { (void)read_launch_trace(CsvTable(lonely)); }), "ranks.csv"));
}

TEST_CASE("a replay asks for what is missing: a transfer time, a rank") {
  test::LaunchFiles files;
  files.collectives = "collective,producer_stream,fitted_D_us\n0,7,\n";
  files.rows = "0,0,1,nccl,20,9,,0\n1,0,1,nccl,20,9,,0\n";
  const LaunchTrace recording = read_launch_trace(CsvTable(files.written()));
  CHECK(holds(test::error_of([&] { (void)replay(recording); }),
              "collective 0 has no fitted_D_us in collective_defs.csv"));
  CHECK(holds(test::error_of([&] {
                (void)replay(recording, {}, {.ranks_from = 2, .transfers_from = kShortest});
              }),
              "there is no rank 2; the recording has ranks 0 to 1"));
}

TEST_CASE("recorded kernels must be of every rank and collective") {
  test::LaunchFiles files;
  files.rows = "0,0,1,nccl,20,9,,0\n1,0,1,nccl,20,9,,0\n";
  files.collectives = "collective,producer_stream,fitted_D_us\n0,7,5\n";
  const std::string path = files.written();
  const std::string kernels = path.substr(0, path.rfind('/')) + "/collectives.csv";
  const auto read = [&] { return read_launch_trace(CsvTable(path)); };
  std::ofstream(kernels) << "rank,idx,start_us,end_us\n0,0,10,400\n";
  CHECK(holds(test::error_of([&] { (void)read(); }), "must hold every collective of every rank"));
  std::ofstream(kernels) << "rank,idx,start_us,end_us\n0,0,10,20\n1,0,12,22\n";
  const LaunchReplay result = replay(read());
  REQUIRE(result.collectives[0].measured.has_value());
  // Arrivals at 10 and 10, ends at 15; recorded ends at 20 and 22, their mean 21.
  CHECK(result.collectives[0].measured->skew == Duration(2'000));
  CHECK(result.collectives[0].measured->transfer == Duration(8'000));
  CHECK(result.collectives[0].measured->end == Duration(21'000));
  CHECK(result.collectives[0].worst_end_error == Duration(-7'000));
}

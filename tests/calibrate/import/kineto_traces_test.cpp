// Do the recorded traces give the counts, collectives and buckets that their index states?
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/import/kineto/kineto_match.h"
#include "calibrate/import/kineto/kineto_parts.h"
#include "calibrate/import/kineto/kineto_program.h"
#include "calibrate/import/kineto/kineto_trace.h"
#include "tests/approx.h"
#include "tests/costmodel/network/nccl_sweeps.h"
#include "tests/test_data.h"

namespace stepsim {
namespace {

/// One line of a CSV file, by column.
using TraceLine = std::map<std::string, std::string>;
using stepsim::test::Approx;

std::vector<TraceLine> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  const auto columns = test::csv_fields(text);
  std::vector<TraceLine> lines;
  while (std::getline(file, text)) {
    const auto fields = test::csv_fields(text);
    REQUIRE(fields.size() == columns.size());
    TraceLine line;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      line[columns[i]] = fields[i];
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

/// The recorded collectives of one rank; times in the CSV count from the first step of all ranks.
void check_collectives(const KinetoTrace& trace,
                       const std::vector<TraceLine>& lines,
                       std::int64_t zero_ns) {
  std::size_t i = 0;
  for (const TraceLine& line : lines) {
    if (std::stoi(line.at("rank")) != trace.header.rank) {
      continue;
    }
    CAPTURE(line.at("idx"));
    REQUIRE(i < trace.collectives.size());
    const KinetoCollective& one = trace.collectives[i++];
    const auto us = [&](std::int64_t time) { return static_cast<double>(time - zero_ns) * 1e-3; };
    CHECK(one.kind == collective_kind_of_call(line.at("op")));
    CHECK(one.dtype == dtype_name(line.at("dtype")));
    CHECK(one.elements == std::stoll(line.at("nelems")));
    CHECK(one.bytes == std::stoll(line.at("bytes")));
    CHECK(one.stream == std::stoll(line.at("stream")));
    CHECK(us(one.launch.span.start_ns) == Approx(std::stod(line.at("launch_us"))));
    CHECK(us(one.span.start_ns) == Approx(std::stod(line.at("start_us"))));
    CHECK(us(one.span.end_ns()) == Approx(std::stod(line.at("end_us"))));
    CHECK(trace.steps[static_cast<std::size_t>(one.step)].number == std::stoll(line.at("step")));
  }
  CHECK(i == trace.collectives.size());
}

const std::vector<std::string> kDlrm = {
    "0_step_12.1694128201545", "1_step_12.1694128201556", "7_step_12.1694128201553"};

}  // namespace

TEST_CASE("four recorded traces give the counts of import_expected.csv") {
  const auto index = test::data_file("traces/import_expected.csv");
  if (!index) {
    return;
  }
  const std::string folder = index->substr(0, index->rfind('/') + 1);
  for (const TraceLine& line : read_lines(*index)) {
    CAPTURE(line.at("file"));
    const KinetoTrace trace = read_kineto(folder + line.at("file"));
    const auto number = [&](const std::string& column) { return std::stoll(line.at(column)); };
    std::map<std::string, std::int64_t> counts;
    std::int64_t invalid_calls = 0;
    (void)read_kineto_events(folder + line.at("file"), [&](const KinetoEvent& event) {
      ++counts[event.phase + " " + event.category];
      invalid_calls += event.name == "INVALID" ? 1 : 0;
    });
    CHECK(trace.header.rank == number("rank"));
    CHECK(trace.header.world_size == number("world_size"));
    CHECK(trace.events == number("events"));
    for (const std::string category : {"cpu_op",
                                       "cuda_runtime",
                                       "kernel",
                                       "gpu_memcpy",
                                       "gpu_memset",
                                       "user_annotation",
                                       "gpu_user_annotation"}) {
      CAPTURE(category);
      CHECK(counts["X " + category] == number(category));
    }
    CHECK(counts["s ac2g"] == number("flow_start_ac2g"));
    CHECK(counts["f ac2g"] == number("flow_end_ac2g"));
    CHECK(static_cast<long long>(trace.collectives.size()) == number("nccl_kernels"));
    CHECK(trace.without_launch == number("gpu_ops_without_launch"));
    CHECK(invalid_calls == number("invalid_runtime_calls"));
    CHECK(std::ssize(trace.calls) ==
          counts["X cuda_runtime"] + counts["X cuda_driver"] - invalid_calls);
    CHECK(trace.unusable == 0);
    CHECK(trace.header.repaired == 0);
    CHECK(fmt::format("{}", fmt::join(trace.streams, " ")) == line.at("streams"));
    std::vector<std::int64_t> steps;
    for (const KinetoStep& step : trace.steps) {
      steps.push_back(step.number);
    }
    CHECK(fmt::format("{}", fmt::join(steps, " ")) == line.at("steps"));
    CHECK(trace.header.fractional_times == (line.at("timestamps") == "fractional"));
    const std::int64_t first = trace.steps.front().span.start_ns - trace.header.base_ns;
    CHECK(std::abs(static_cast<long double>(first) -
                   std::stold(line.at("first_step_ts_us")) * 1000) < 0.5L);
  }
}

TEST_CASE("ResNet-50 under DDP: every collective as recorded, five buckets in every step") {
  const auto path = test::data_file("traces/resnet50_2xA100_rank0/rank0.pt.trace.json.gz");
  const auto lines = test::data_file("traces/resnet50_2xA100_rank0/collectives.csv");
  if (!path || !lines) {
    return;
  }
  const KinetoTrace trace = read_kineto(*path);
  check_collectives(trace, read_lines(*lines), trace.steps.front().span.start_ns);
  // [step]: elements of its buckets.
  std::vector<std::vector<std::int64_t>> buckets(trace.steps.size());
  for (const KinetoCollective& one : trace.collectives) {
    CHECK(one.bucket == (one.kind == "all_reduce"));
    CHECK(one.group_ranks == std::vector<int>{0, 1});
    if (one.bucket) {
      buckets[static_cast<std::size_t>(one.step)].push_back(*one.elements);
    }
  }
  for (const auto& elements : buckets) {
    CHECK(elements == std::vector<std::int64_t>{2049000, 7875584, 6563840, 6637568, 2431040});
  }
}

// start = max(launch + 12 us, end of the compute launched before), to -1 .. +17 us.
TEST_CASE("ResNet-50 under DDP: 15 of 15 buckets start as soon as they are ready") {
  const auto path = test::data_file("traces/resnet50_2xA100_rank0/rank0.pt.trace.json.gz");
  if (!path) {
    return;
  }
  int buckets = 0;
  for (const KinetoCollective& one : read_kineto(*path).collectives) {
    if (one.bucket) {
      ++buckets;
      REQUIRE(one.ready_ns);
      const std::int64_t start = std::max(one.launch.span.start_ns + 12'000, *one.ready_ns);
      CHECK(one.span.start_ns - start >= -1'000);
      CHECK(one.span.start_ns - start <= 17'000);
    }
  }
  CHECK(buckets == 15);
}

TEST_CASE("DLRM: collectives of three ranks as recorded, transfers as the index states") {
  const auto lines = test::data_file("traces/dlrm_8xV100/collectives.csv");
  const auto expected = test::data_file("traces/dlrm_8xV100/expected_collectives.csv");
  if (!lines || !expected) {
    return;
  }
  std::vector<KinetoTrace> traces;
  for (const std::string& name : kDlrm) {
    const auto path =
        test::data_file("traces/dlrm_8xV100/kineto/worker" + name + ".pt.trace.json.gz");
    REQUIRE(path);
    traces.push_back(read_kineto(*path));
  }
  // Rank 1 began first of all eight: its step starts at 1694128201421205 us.
  const std::int64_t zero = traces[1].steps.front().span.start_ns;
  for (const KinetoTrace& trace : traces) {
    check_collectives(trace, read_lines(*lines), zero);
  }
  const KinetoMatches matches = match_collectives(traces);
  CHECK(matches.unmatched.empty());
  CHECK(matches.shift_ns == std::vector<std::int64_t>{0, 0, 0});
  CHECK(matches.warnings.size() == 1);  // Upper bounds: three ranks of eight.
  std::size_t i = 0;
  for (const TraceLine& line : read_lines(*expected)) {
    if (line.at("ranks") != "0;1;7") {
      continue;
    }
    CAPTURE(line.at("collective"));
    REQUIRE(i < matches.matches.size());
    const KinetoMatch& match = matches.matches[i++];
    const auto check_us = [&](std::int64_t found, const std::string& column) {
      CAPTURE(column);
      CHECK(static_cast<double>(found) * 1e-3 == Approx(std::stod(line.at(column))));
    };
    CHECK(match.kind == line.at("op"));
    CHECK(match.bytes == std::stoll(line.at("bytes")));
    CHECK(!match.complete);
    check_us(match.transfer_ns, "transfer_us_min_end_minus_max_start");
    check_us(match.skew_ns, "arrival_skew_us");
    check_us(match.end_spread_ns, "end_spread_us");
    check_us(match.shortest_ns, "kernel_dur_min_us");
    check_us(match.longest_ns, "kernel_dur_max_us");
  }
  CHECK(i == 8);
}

/// The GPU's time in every step of a trace as in the reference's steps.csv.
void check_step_times(const std::string& trace_path, const std::string& steps_path) {
  const KinetoTrace trace = read_kineto(trace_path);
  const auto times = kineto_step_times(trace);
  std::size_t i = 0;
  for (const TraceLine& line : read_lines(steps_path)) {
    if (std::stoi(line.at("rank")) != trace.header.rank) {
      continue;
    }
    CAPTURE(line.at("step"));
    REQUIRE(i < times.size());
    const KinetoStepTime& time = times[i++];
    const auto check_us = [&](std::int64_t ns, const std::string& column) {
      CAPTURE(column);
      CHECK(static_cast<double>(ns) * 1e-3 == Approx(std::stod(line.at(column))));
    };
    check_us(time.compute_ns, "compute_busy_us");
    check_us(time.collective_ns, "nccl_busy_us");
    check_us(time.both_ns, "overlap_us");
    check_us(time.idle_ns(), "gpu_idle_us");
  }
  CHECK(i == times.size());
}

TEST_CASE("the GPU's busy and idle times are those of the reference") {
  const auto resnet = test::data_file("traces/resnet50_2xA100_rank0/steps.csv");
  const auto dlrm = test::data_file("traces/dlrm_8xV100/steps.csv");
  if (!resnet || !dlrm) {
    return;
  }
  check_step_times(*test::data_file("traces/resnet50_2xA100_rank0/rank0.pt.trace.json.gz"),
                   *resnet);
  // Rank 1's figures count the 64 operations without a launch.
  for (const std::size_t rank : {0U, 2U}) {
    check_step_times(
        *test::data_file("traces/dlrm_8xV100/kineto/worker" + kDlrm[rank] + ".pt.trace.json.gz"),
        *dlrm);
  }
}

// Every row and column of the reference's program, of the three ranks whose traces are there.
TEST_CASE("DLRM: the program of three ranks is that of the reference") {
  const auto reference = test::data_file("traces/dlrm_8xV100/program.csv");
  const auto ranks = test::data_file("traces/dlrm_8xV100/ranks.csv");
  if (!reference || !ranks) {
    return;
  }
  std::vector<KinetoTrace> traces;
  for (const std::string& name : kDlrm) {
    traces.push_back(read_kineto(
        *test::data_file("traces/dlrm_8xV100/kineto/worker" + name + ".pt.trace.json.gz")));
  }
  const KinetoProgram program =
      make_kineto_program(traces, match_collectives(traces), std::nullopt);
  CHECK(program.step == 10);
  CHECK(program.ranks.size() == 3);
  const std::string folder = test::fresh_folder() + "/program";
  write_kineto_program(folder, program);
  const std::map<std::string, std::string> rank_of = {{"0", "0"}, {"1", "1"}, {"2", "7"}};
  // [rank of the run]: lines without the rank.
  const auto by_rank = [](std::vector<TraceLine> lines, const auto& rename) {
    std::map<std::string, std::vector<TraceLine>> result;
    for (TraceLine& line : lines) {
      const std::string rank = rename(line.at("rank"));
      line.erase("rank");
      line.erase("trace_rank");
      for (const char* ours : {"waits_row", "held_us", "cut"}) {
        line.erase(ours);  // The reference's programs have none.
      }
      result[rank].push_back(std::move(line));
    }
    return result;
  };
  for (const auto& [file, wanted] :
       {std::pair("/program.csv", *reference), std::pair("/ranks.csv", *ranks)}) {
    const auto all = by_rank(read_lines(wanted), [](const std::string& rank) { return rank; });
    auto made = by_rank(read_lines(folder + file),
                        [&](const std::string& rank) { return rank_of.at(rank); });
    if (file == std::string("/program.csv")) {
      // What rank 1's GPU had still to do of the time before stands first; the reference drops it.
      std::vector<TraceLine>& lines = made.at("1");
      CHECK(lines.front().at("gpu_dur_us") == "1327");
      lines.erase(lines.begin());
      for (TraceLine& line : lines) {
        line.at("idx") = std::to_string(std::stoi(line.at("idx")) - 1);
      }
    }
    CHECK(made.size() == 3);
    for (const auto& one : made) {
      CAPTURE(one.first);
      const std::vector<TraceLine>& lines = all.at(one.first);
      REQUIRE(one.second.size() == lines.size());
      for (std::size_t i = 0; i < lines.size(); ++i) {
        CAPTURE(i);
        CHECK(one.second[i] == lines[i]);
      }
    }
  }
}

}  // namespace stepsim

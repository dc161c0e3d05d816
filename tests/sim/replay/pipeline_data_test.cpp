// 45 recorded steps of a job of 32 replicas with 2 pipeline stages played again.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/io/csv_table.h"
#include "sim/replay/pipeline_replay.h"
#include "tests/approx.h"
#include "tests/test_data.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

constexpr double kMillisecond = 1e-3;

/// Mean absolute and worst error in percent.
struct PipelineErrors {
  double mean = 0;
  double worst = 0;
};

PipelineErrors errors(const PipelineTrace& recording, const std::vector<Duration>& replayed) {
  PipelineErrors result;
  for (std::size_t i = 0; i < replayed.size(); ++i) {
    const double error =
        100 * std::abs(to_ms(replayed[i]) / to_ms(recording.steps[i].measured) - 1);
    result.mean += error / static_cast<double>(replayed.size());
    result.worst = std::max(result.worst, error);
  }
  return result;
}

double mean_ms(const std::vector<Duration>& steps) {
  return to_ms(std::accumulate(steps.begin(), steps.end(), Duration::zero())) /
         static_cast<double>(steps.size());
}

}  // namespace

TEST_CASE("45 steps of a pipeline job are replayed to 0.01 %; with buffered sends as published") {
  const auto ops = test::data_file("traces/bytedance_SE/ops.csv.gz");
  const auto expected = test::data_file("traces/bytedance_SE/expected_steps.csv");
  if (!ops || !expected) {
    return;
  }
  const PipelineTrace recording = read_pipeline_trace(CsvTable(*ops));
  CHECK(recording.rows == 112'320);
  CHECK(recording.replicas == 32);
  CHECK(recording.stages == 2);
  CHECK(recording.cut.empty());
  const auto blocking = replay(recording, {.host_gaps = false});
  const auto buffered = replay(recording, {.sends = SendMode::Buffered, .host_gaps = false});
  const auto balanced =
      replay(recording, {.sends = SendMode::Buffered, .balanced = true, .host_gaps = false});
  const CsvTable table(*expected);
  REQUIRE(table.rows() == 45);
  REQUIRE(recording.steps.size() == 45);
  for (std::size_t i = 0; i < 45; ++i) {
    CAPTURE(recording.steps[i].number);
    // The file's figures have two decimals.
    const auto figure = [&](const char* name) {
      return to_ms(table.duration(i, table.column(name), kMillisecond));
    };
    CHECK(recording.steps[i].number == table.integer(i, table.column("step"), 0, 1000));
    CHECK(std::abs(to_ms(recording.steps[i].measured) - figure("measured_ms")) < 0.0051);
    CHECK(std::abs(to_ms(buffered[i]) - figure("replay_ms")) < 0.0071);
    CHECK(std::abs(to_ms(balanced[i]) - figure("balanced_ms")) < 0.0071);
    CHECK(blocking[i] >= buffered[i]);
    CHECK(blocking[i] < recording.steps[i].measured);
  }
  CHECK(errors(recording, buffered).mean <= 0.52);
  CHECK(errors(recording, buffered).worst <= 0.93);
  CHECK(errors(recording, blocking).mean <= 0.2);
  CHECK(errors(recording, blocking).worst <= 0.36);
  // What the hosts do between two rows is the rest: every second step chose the rule.
  const auto with_gaps = replay(recording);
  CHECK(errors(recording, with_gaps).mean <= 0.01);
  CHECK(errors(recording, with_gaps).worst <= 0.03);
  CHECK(mean_ms(balanced) == Approx(6760.5).epsilon(1e-4));
  CHECK(std::abs(mean_ms(replay(recording, {.balanced = true})) - 6760) < 100);
}

// A recorded step of 8 ranks (PyTorch DLRM on 8 V100) played again, and how far wrong models miss.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/io/csv_table.h"
#include "sim/replay/launch_replay.h"
#include "tests/approx.h"
#include "tests/test_data.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

constexpr double kMicrosecond = 1e-6;

std::optional<std::string> data(const char* name) {
  return test::data_file(std::string("traces/dlrm_8xV100/") + name);
}

double us(Duration duration) {
  return static_cast<double>(duration.count()) * 1e-3;
}

/// Mean absolute, largest and mean signed error of the steps in percent.
struct Errors {
  double mean = 0;
  double worst = 0;
  double bias = 0;
};

Errors errors(const LaunchReplay& replayed) {
  Errors result;
  for (const ReplayedRank& rank : replayed.ranks) {
    const double error = 100 * (us(rank.step) / us(rank.measured.value()) - 1);
    result.mean += std::abs(error);
    result.bias += error;
    result.worst = std::max(result.worst, std::abs(error));
  }
  const auto ranks = static_cast<double>(replayed.ranks.size());
  return {result.mean / ranks, result.worst, result.bias / ranks};
}

}  // namespace

TEST_CASE("the recorded step is replayed to 0.15 %, as published") {
  const auto program = data("program.csv");
  const auto expected = data("expected_replay.csv");
  if (!program || !expected) {
    return;
  }
  const LaunchTrace recording = read_launch_trace(CsvTable(*program));
  const LaunchReplay full = replay(recording);
  const LaunchReplay alone = replay(recording, {}, {.barrier = false});
  const CsvTable table(*expected);
  REQUIRE(full.ranks.size() == 8);
  REQUIRE(table.rows() == 8);
  for (std::size_t r = 0; r < 8; ++r) {
    CAPTURE(r);
    // The file's figures have one decimal.
    const auto figure = [&](const char* name) {
      return us(table.duration(r, table.column(name), kMicrosecond));
    };
    CHECK(us(full.ranks[r].step) == Approx(figure("replay_step_us")).epsilon(4e-6));
    CHECK(us(alone.ranks[r].step) == Approx(figure("no_barrier_step_us")).epsilon(4e-6));
  }
  CHECK(errors(full).mean <= 0.15);
  CHECK(errors(full).worst < 0.195);
  CHECK(errors(full).bias < 0);
  CHECK(errors(alone).mean > 15);
}

TEST_CASE("every collective ends 9 to 31 us before its record, as published") {
  const auto program = data("program.csv");
  const auto expected = data("expected_collectives.csv");
  if (!program || !expected) {
    return;
  }
  const LaunchReplay result = replay(read_launch_trace(CsvTable(*program)));
  const CsvTable table(*expected);
  REQUIRE(result.collectives.size() == 8);
  for (std::size_t c = 0; c < 8; ++c) {
    CAPTURE(c);
    const auto figure = [&](const char* name) {
      return us(table.duration(c, table.column(name), kMicrosecond));
    };
    const ReplayedCollective& collective = result.collectives[c];
    const auto& measured = collective.measured.value();
    CHECK(us(collective.replayed.end) == Approx(figure("replay_end_us")).epsilon(4e-6));
    CHECK(std::abs(us(measured.end) - figure("measured_mean_end_us")) <= 0.051);
    CHECK(us(measured.skew) == figure("arrival_skew_us"));
    CHECK(us(measured.transfer) == figure("transfer_us_min_end_minus_max_start"));
    const double early = us(measured.end - collective.replayed.end);
    CHECK(early > 8.5);
    CHECK(early < 31.5);
    CHECK(std::abs(us(collective.worst_end_error)) < 50);
  }
}

TEST_CASE("wrong models of the recorded step miss by what is published") {
  const auto program = data("program.csv");
  const auto expected = data("expected_ablations.csv");
  if (!program || !expected) {
    return;
  }
  const LaunchTrace recording = read_launch_trace(CsvTable(*program));
  std::vector<LaunchReplayOptions> options = {{}, {.barrier = false}};
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    options.push_back({.transfers_from = rank});
  }
  options.push_back({.transfers_from = kShortest});
  options.push_back({.transfer_scale = 0});
  options.push_back({.transfer_scale = 5});
  options.push_back({.cpu_scale = 0.9});
  options.push_back({.cpu_scale = 1.1});
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    options.push_back({.ranks_from = rank});
  }
  const CsvTable table(*expected);
  REQUIRE(table.rows() == options.size());
  std::vector<double> donors;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    CAPTURE(row);
    CAPTURE(std::string(table.text(row, 0)));
    const Errors found = errors(replay(recording, {}, options[row]));
    const auto figure = [&](const char* name) {
      return std::stod(std::string(table.text(row, table.column(name))));
    };
    // The file's figures have two decimals.
    CHECK(std::abs(found.mean - figure("mean_abs_err_pct")) < 0.0051);
    CHECK(std::abs(found.worst - figure("max_abs_err_pct")) < 0.0051);
    CHECK(std::abs(found.bias - figure("bias_pct")) < 0.0051);
    if (options[row].ranks_from) {
      donors.push_back(found.mean);
    }
  }
  std::ranges::sort(donors);
  CHECK((donors[3] + donors[4]) / 2 == Approx(1.9).epsilon(0.03));
}

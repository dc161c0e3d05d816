// A GPU that waits for its host, in trainings whose every launch is played.
#include "calibrate/import/recorded/recorded_waits.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/compute/pass_cost.h"
#include "tests/approx.h"
#include "tests/calibrate/import/recorded_training.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

constexpr double kLaunch = 0.1;   // Milliseconds of the host for an op.
constexpr int kForwardOps = 100;  // And the head, as long as so many of them:
constexpr int kHead = 10;
constexpr int kBackwardOps = 200;
constexpr int kOptimizerOps = 10;
constexpr double kOpOfSample = 0.01;   // Of the device, for an op of a sample.
constexpr double kOptimizerOp = 0.05;  // Shorter than its launch.
constexpr double kFurthestAhead = 5;   // The host makes no batch while it is further ahead.
constexpr std::int64_t kLength = 128;

/// A record, and whether the device waited for the last launch of each row's passes.
struct PlayedRun {
  RecordedRun run;
  std::vector<PassWaits> waited;
};

class Player {
 public:
  /// Puts in ops that take the device `ms` each, the last one `last_ms`. Returns whether it had
  /// nothing to do before that.
  bool put_in(int ops, double ms, double last_ms) {
    bool waited = false;
    for (int op = 0; op < ops; ++op) {
      host_ += kLaunch;
      waited = device_ < host_;
      device_ = std::max(device_, host_) + (op + 1 == ops ? last_ms : ms);
    }
    return waited;
  }
  void begin_step() { host_ = std::max(host_, device_ - kFurthestAhead); }
  void stall(double ms) {
    host_ += ms;
    device_ = std::max(device_, host_);
  }
  [[nodiscard]] double host() const { return host_; }
  [[nodiscard]] double device() const { return device_; }

 private:
  double host_ = 0;
  double device_ = 0;
};

/// A training on one GPU. `batch_sizes`: samples by turns. `stall_ms`: of the first backward of
/// each, behind the warm-up.
PlayedRun played_run(const std::vector<std::int64_t>& batch_sizes, double stall_ms = 0) {
  MadeTraining training;
  training.recorded = Recorded::Nothing;
  training.ranks = 1;
  training.steps = 120;
  PlayedRun played{made_run(training), {}};
  RecordedRun& run = played.run;
  run.record.backend = "nccl";
  run.record.device = "NVIDIA H100";
  Player player;
  for (std::size_t i = 0; i < run.record.steps.size(); ++i) {
    StepRecord& row = run.record.steps[i];
    MicroBatch& batch = run.plan.micro_batches[i];
    row.samples = batch_sizes[i % batch_sizes.size()];
    batch.lengths.assign(static_cast<std::size_t>(row.samples), kLength);
    batch.samples.resize(batch.lengths.size());
    row.max_length = batch.shape().max_length;
    row.useful_tokens = row.padded_tokens = row.samples * kLength;
    const double op = kOpOfSample * static_cast<double>(row.samples);
    const double begin = player.device();
    const double host_begin = player.host();
    player.begin_step();
    row.data_host_ms = player.host() - host_begin;
    PassWaits waited;
    const auto timed = [&](double* device_ms, double* host_ms, const auto& pass) {
      const double device = player.device();
      const double host = player.host();
      const bool result = pass();
      *device_ms = player.device() - device;
      *host_ms = player.host() - host;
      return result;
    };
    waited.forward = timed(&row.forward_ms, &row.forward_host_ms, [&] {
      return player.put_in(kForwardOps, op, op * kHead);
    });
    waited.backward = timed(&row.backward_ms, &row.backward_host_ms, [&] {
      if (stall_ms > 0 && i / batch_sizes.size() == 5) {
        player.stall(stall_ms);
      }
      return player.put_in(kBackwardOps, op, op);
    });
    waited.optimizer = timed(&row.optimizer_ms, &row.optimizer_host_ms, [&] {
      return player.put_in(kOptimizerOps, kOptimizerOp, kOptimizerOp);
    });
    row.start_ms = begin;
    row.data_ms = 0;
    row.step_ms = player.device() - begin;
    row.lag_ms = player.device() - player.host();
    played.waited.push_back(waited);
  }
  return played;
}

double forward_ms(std::int64_t samples) {
  return kOpOfSample * static_cast<double>(samples) * (kForwardOps - 1 + kHead);
}

/// What the model's forward is fitted to take, in milliseconds.
double fitted_forward_ms(const RecordedCosts& costs, std::int64_t samples) {
  BatchShape shape;
  shape.samples = samples;
  shape.max_length = kLength;
  shape.useful_tokens = samples * kLength;
  shape.sum_squares = static_cast<double>(samples * kLength * kLength);
  const PassCost& cost = costs.model.forward;
  return 1e3 * pass_seconds(cost, cost.coefficients, shape, false);
}

}  // namespace

TEST_CASE("recorded waits: a device without launches in store is told from one with some") {
  const PlayedRun played = played_run({1, 2, 48, 48, 1, 4, 2, 1});
  const RunRecord& record = played.run.record;
  const std::vector<const RunRecord*> records = {&record};
  const auto waits = find_waits(records);
  int waiting = 0;
  int busy = 0;
  int busy_optimizers = 0;
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    const StepRecord& row = record.steps[i];
    if (row.step < record.warmup_steps) {
      continue;
    }
    CAPTURE(row.step);
    CAPTURE(row.samples);
    const auto found = waits.find({0, row.repeat, row.step, row.rank});
    const PassWaits told = found == waits.end() ? PassWaits{} : found->second;
    CHECK(told.forward == played.waited[i].forward);
    CHECK(told.backward == played.waited[i].backward);
    CHECK((told.optimizer || !played.waited[i].optimizer));
    busy_optimizers += told.optimizer ? 0 : 1;
    waiting += told.any() ? 1 : 0;
    busy += told.any() ? 0 : 1;
  }
  CHECK(waiting > 50);
  CHECK(busy > 20);
  CHECK(busy_optimizers > 20);
}

TEST_CASE("recorded waits: the host's time does not inflate the device's") {
  for (const double stall_ms : {0.0, 400.0}) {
    CAPTURE(stall_ms);
    const std::vector<RecordedRun> runs = {played_run({1, 2, 48, 32, 1, 4, 2, 1}, stall_ms).run};
    const RecordedCosts costs = fit_recorded_runs(runs);
    REQUIRE(costs.model.launch_seconds > 0);
    CHECK(fitted_forward_ms(costs, 48) == Approx(forward_ms(48)).epsilon(0.02));
    CHECK(fitted_forward_ms(costs, 32) == Approx(forward_ms(32)).epsilon(0.02));
    CHECK(costs.model.optimizer_seconds == Approx(1e-3 * kOptimizerOps * kOptimizerOp));
    CHECK(std::ranges::any_of(costs.notes, [](const std::string& note) {
      return note.starts_with("the device waited for its host in ");
    }));
    // Small batches were recorded, too.
    CHECK(costs.model.forward.tokens.first == kLength);
  }
}

TEST_CASE("recorded waits: without the host's times, and of several ranks, nothing is told") {
  PlayedRun played = played_run({1, 2, 48, 48, 1, 4, 2, 1});
  const std::vector<const RunRecord*> records = {&played.run.record};
  played.run.record.world_size = 2;
  CHECK(find_waits(records).empty());
  played.run.record.world_size = 1;
  for (StepRecord& row : played.run.record.steps) {
    row.forward_host_ms = row.backward_host_ms = row.optimizer_host_ms = 0;
  }
  CHECK(find_waits(records).empty());
}

TEST_CASE("recorded waits: a device that is further behind than with as many tokens had launches") {
  RunRecord record;
  record.world_size = 1;
  record.warmup_steps = 1;
  // Lags of 2, 2.9 and 4 ms behind passes of 100 ms: up to 1.25 x 2 + 0.5 ms is the least one.
  for (const double lag_ms : {2.0, 2.0, 2.9, 4.0}) {
    StepRecord row;
    row.step = static_cast<int>(record.steps.size());
    row.samples = 8;
    row.padded_tokens = 1024;
    row.forward_ms = row.forward_host_ms = 100;
    row.backward_ms = row.backward_host_ms = 100;
    row.optimizer_ms = row.optimizer_host_ms = 1;
    row.lag_ms = lag_ms;
    record.steps.push_back(row);
  }
  // A backward that ended 10 ms behind its host, its forward 2 ms.
  StepRecord ahead = record.steps.front();
  ahead.step = static_cast<int>(record.steps.size());
  ahead.padded_tokens = 2048;
  ahead.lag_ms = 10;
  ahead.backward_host_ms = 92;
  record.steps.push_back(ahead);
  const std::vector<const RunRecord*> records = {&record};
  const auto waits = find_waits(records);
  CHECK_FALSE(waits.contains({0, 0, 0, 0}));  // It warms up.
  REQUIRE(waits.contains({0, 0, 1, 0}));
  CHECK(waits.at({0, 0, 1, 0}).forward);
  CHECK(waits.at({0, 0, 1, 0}).backward);
  CHECK(waits.contains({0, 0, 2, 0}));
  CHECK_FALSE(waits.contains({0, 0, 3, 0}));
  REQUIRE(waits.contains({0, 0, 4, 0}));
  CHECK(waits.at({0, 0, 4, 0}).forward);
  CHECK_FALSE(waits.at({0, 0, 4, 0}).backward);
}

TEST_CASE("recorded waits: what was left out is said") {
  CHECK(waits_text(std::vector<PassWaits>(3)).empty());
  CHECK(waits_text(std::vector<PassWaits>{{true, false}, {true, true}, {false, false}}) ==
        "the device waited for its host in 2 of 3 forwards and 1 of the backwards: these times are "
        "the host's, and left out of the device's");
}

// The host of a GPU, planted in made trainings: what it takes to put steps in, and to meet shapes.
#include "calibrate/import/recorded/recorded_host.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/approx.h"
#include "tests/calibrate/import/recorded_training.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

constexpr double kHostForward = 0.4;  // Milliseconds.
constexpr double kHostBackward = 0.5;
constexpr double kHostOptimizer = 0.1;
constexpr double kMeeting = 4;  // More in each pass.

/// A training on one GPU whose device runs behind its host, as far as `queue_ms`. `batch_sizes`:
/// samples by turns. `slowdown`: how much slower the host is at the end than at the beginning.
RecordedRun gpu_run(const std::vector<std::int64_t>& batch_sizes,
                    double queue_ms,
                    double slowdown = 0) {
  MadeTraining training;
  training.recorded = Recorded::Nothing;
  training.ranks = 1;
  training.steps = 160;
  training.round_length = 128;
  RecordedRun run = made_run(training);
  run.record.backend = "nccl";
  run.record.device = "NVIDIA H200";
  std::set<std::pair<std::int64_t, std::int64_t>> met;
  double lag = 0;
  for (std::size_t i = 0; i < run.record.steps.size(); ++i) {
    StepRecord& row = run.record.steps[i];
    MicroBatch& batch = run.plan.micro_batches[i];
    batch.lengths.resize(static_cast<std::size_t>(batch_sizes[i % batch_sizes.size()]), 1);
    batch.samples.resize(batch.lengths.size());
    row.max_length = batch.shape().max_length;
    row.samples = static_cast<std::int64_t>(batch.lengths.size());
    row.useful_tokens = 0;
    for (const std::int64_t length : batch.lengths) {
      row.useful_tokens += length;
    }
    const bool is_new = met.emplace(row.samples, row.max_length).second;
    const double device = 1e-4 * static_cast<double>(row.samples * row.max_length);
    const double speed =
        1 + slowdown * static_cast<double>(i) / static_cast<double>(run.record.steps.size());
    row.forward_host_ms =
        speed * kHostForward + (is_new ? kMeeting : 0) + std::max(0.0, lag - queue_ms);
    row.backward_host_ms = speed * kHostBackward + (is_new ? kMeeting : 0);
    row.optimizer_host_ms = speed * kHostOptimizer;
    const double host = row.forward_host_ms + row.backward_host_ms + row.optimizer_host_ms;
    row.step_ms = std::max(device, host - lag);
    row.forward_ms = row.step_ms / 3;
    row.backward_ms = row.step_ms - row.forward_ms;
    lag = std::max(0.0, lag + row.step_ms - host);
    row.lag_ms = lag;
  }
  return run;
}

}  // namespace

TEST_CASE("recorded host: what it takes is found beside large batches that it waits for") {
  const std::vector<RecordedRun> runs = {gpu_run({1, 2, 1, 4, 64, 1, 2}, 2.0)};
  const RecordedHost host = fit_recorded_host(runs);
  REQUIRE(host.launch.seconds > 0);
  CAPTURE(host.note);
  CHECK(host.note.starts_with("the host takes 1.000 ms to launch a step"));
  CHECK_FALSE(host.syncs);
  REQUIRE(host.new_shapes.size() == 1);
  CHECK(host.new_shapes[0].forward_seconds == Approx(kMeeting * 1e-3).epsilon(0.05));
  CHECK(host.new_shapes[0].backward_seconds == Approx(kMeeting * 1e-3).epsilon(0.05));
}

TEST_CASE("recorded host: how far its speed drifts is how unsure it is in the next run") {
  const std::vector<RecordedRun> steady = {gpu_run({1, 2, 1, 4, 64, 1, 2}, 2.0)};
  CHECK(fit_recorded_host(steady).launch.relative_error < 0.01);
  // Eighths of 0.85 to 1.14 of the mean have a standard deviation of 10 %, as rounds of steps have;
  // as the mean of ten independent rounds it would be known to 4 %.
  const std::vector<RecordedRun> drifting = {gpu_run({1, 2, 1, 4, 64, 1, 2}, 2.0, 0.4)};
  CHECK(fit_recorded_host(drifting).launch.relative_error == Approx(0.2).epsilon(0.15));
}

TEST_CASE("recorded host: a wait for room in the queue is none of its own time") {
  const std::vector<RecordedRun> runs = {gpu_run({1, 64, 2, 64}, 0.6)};
  const RecordedHost host = fit_recorded_host(runs);
  CAPTURE(host.note);
  CHECK(host.note.starts_with("the host takes 1.000 ms to launch a step"));
}

TEST_CASE("recorded host: steps of one size do not tell host and device apart") {
  const std::vector<RecordedRun> runs = {gpu_run({64}, 2.0)};
  CHECK(fit_recorded_host(runs).launch.seconds == 0);
}

TEST_CASE("recorded host: without the host's times nothing is told") {
  std::vector<RecordedRun> runs = {gpu_run({1, 2, 1, 4, 64, 1, 2}, 2.0)};
  for (StepRecord& row : runs[0].record.steps) {
    row.forward_host_ms = row.backward_host_ms = row.optimizer_host_ms = 0;
  }
  const RecordedHost host = fit_recorded_host(runs);
  CHECK(host.launch.seconds == 0);
  CHECK(host.new_shapes.empty());
}

TEST_CASE("recorded host: a host that waits for the device in each step is known by it") {
  std::vector<RecordedRun> runs = {gpu_run({1, 2, 1, 4, 64, 1, 2}, 0.0)};
  for (StepRecord& row : runs[0].record.steps) {
    row.lag_ms = 0;
  }
  CHECK(fit_recorded_host(runs).syncs);
}

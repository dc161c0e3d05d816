#include "calibrate/import/recorded/recorded_stalls.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "tests/approx.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

constexpr int kSteps = 40;

/// A run of two ranks on different batches. Each step takes 100 ms and a little more or less; ranks
/// with less work wait.
RecordedRun steady_run() {
  RecordedRun run;
  run.record.world_size = 2;
  run.record.backend = "gloo";
  double start = 0;
  for (int step = 0; step < kSteps; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      StepRecord row;
      row.step = step;
      row.rank = rank;
      row.samples = 8;
      row.max_length = 20 + (7 * step + 3 * rank) % 11;
      row.padded_tokens = row.samples * row.max_length;
      row.useful_tokens = row.padded_tokens;
      row.start_ms = start;
      row.data_ms = 0.1 * (1 + (step + rank) % 3);
      row.forward_ms = 0.15 * static_cast<double>(row.padded_tokens) + 0.2 * (step % 2);
      row.backward_ms = 2 * row.forward_ms;
      row.optimizer_ms = 5;
      row.wait_ms = 100 - row.data_ms - row.forward_ms - row.backward_ms - row.optimizer_ms;
      row.step_ms = 100;
      run.record.steps.push_back(row);
    }
    start += 100;
  }
  return run;
}

/// Makes one time of a step longer; the other rank waits, and later steps start later.
void hold_up(RecordedRun& run, int step, int rank, double StepRecord::*part, double ms) {
  for (StepRecord& row : run.record.steps) {
    if (row.step == step) {
      row.*(row.rank == rank ? part : &StepRecord::wait_ms) += ms;
      row.step_ms += ms;
    }
    row.start_ms += row.step > step ? ms : 0;
  }
}

TEST_CASE("stalls: a steady run has none, and its rows stay as they are") {
  const RecordedRun run = steady_run();
  const SteadyRuns steady = without_stalls(std::vector{run});
  CHECK(steady.stalls == StallNoise{});
  CHECK(steady.notes.empty());
  CHECK(steady.runs.front().record.steps == run.record.steps);
}

TEST_CASE("stalls: a step that was held up counts once, at its length, and is cut to its like") {
  for (const auto part : {&StepRecord::data_ms,
                          &StepRecord::forward_ms,
                          &StepRecord::backward_ms,
                          &StepRecord::optimizer_ms}) {
    RecordedRun run = steady_run();
    const RecordedRun before = run;
    hold_up(run, 20, 1, part, 500);
    const SteadyRuns steady = without_stalls(std::vector{run});
    CHECK(steady.stalls.per_step == Approx(1.0 / kSteps));
    REQUIRE(steady.stalls.seconds.size() == 1);
    CHECK(steady.stalls.seconds.front() == Approx(0.5).epsilon(0.01));
    CHECK(steady.stalls.seconds_per_step() == Approx(0.5 / kSteps).epsilon(0.01));
    CHECK(steady.stalls.steps == kSteps);
    CHECK(steady.stalls.step_seconds == Approx(0.1).epsilon(0.01));
    CHECK(steady.notes.size() == 1);
    const std::vector<StepRecord>& rows = steady.runs.front().record.steps;
    REQUIRE(rows.size() == before.record.steps.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double ms = before.record.steps[i].*part;
      CHECK(std::abs(rows[i].*part - ms) < std::max(0.3 * ms, 0.2));
      CHECK(rows[i].step_ms == Approx(100).epsilon(0.1));  // Of 600.
    }
  }
}

TEST_CASE("stalls: less than a tenth of a step is none; a little more is one") {
  RecordedRun run = steady_run();
  hold_up(run, 20, 0, &StepRecord::data_ms, 9.5);
  CHECK(without_stalls(std::vector{run}).stalls.per_step == 0);
  hold_up(run, 20, 0, &StepRecord::data_ms, 1.5);
  CHECK(without_stalls(std::vector{run}).stalls.per_step > 0);
}

TEST_CASE("stalls: the time of a step that was no longer for it does not count") {
  RecordedRun run = steady_run();
  for (StepRecord& row : run.record.steps) {
    if (row.step == 20 && row.rank == 1) {
      row.data_ms += 50;  // This rank has so much less to wait.
      row.wait_ms -= 50;
    }
  }
  const SteadyRuns steady = without_stalls(std::vector{run});
  CHECK(steady.stalls.seconds_per_step() == Approx(0));
}

TEST_CASE("stalls: what comes in one step of six is how that pass is") {
  RecordedRun run = steady_run();
  for (int step = 2; step < kSteps; step += 6) {
    hold_up(run, step, 0, &StepRecord::data_ms, 80);
    hold_up(run, step, 1, &StepRecord::data_ms, 80);
  }
  CHECK(without_stalls(std::vector{run}).stalls.per_step == 0);
}

TEST_CASE("stalls: the first steps are left out and do not come again") {
  RecordedRun run = steady_run();
  hold_up(run, 0, 0, &StepRecord::forward_ms, 20'000);
  hold_up(run, 1, 0, &StepRecord::forward_ms, 3'000);
  const SteadyRuns steady = without_stalls(std::vector{run});
  CHECK(steady.stalls.per_step == 0);
  REQUIRE(steady.notes.size() == 1);
  CHECK(steady.notes.front().starts_with("the first 2 steps took 23.0 s longer than others"));
  CHECK(steady.runs.front().record.warmup_steps == 2);
  CHECK(steady.runs.front().record.steps.size() == run.record.steps.size());
}

TEST_CASE(
    "stalls: long first meetings of shapes do not come again, unless chance may have made them") {
  // Rows of a rank have one of 11 lengths: 11 of its 40 rows meet one, in steps 0 to 10.
  RecordedRun run = steady_run();
  hold_up(run, 4, 0, &StepRecord::backward_ms, 1'300);
  hold_up(run, 7, 1, &StepRecord::backward_ms, 1'200);
  hold_up(run, 9, 1, &StepRecord::forward_ms, 1'200);
  const SteadyRuns steady = without_stalls(std::vector{run});
  CHECK(steady.stalls.per_step == 0);
  REQUIRE(steady.notes.size() == 1);
  CHECK(steady.notes.front().starts_with("3 first meetings of shapes were held up by 3.7"));
  CHECK(steady.runs.front().record.warmup_steps == 0);
  for (const StepRecord& row : steady.runs.front().record.steps) {
    CHECK(row.backward_ms < 110);
  }
  // A rank that waits inside its own backward, a little longer, met none.
  RecordedRun waiting = steady_run();
  for (const int step : {4, 7, 9}) {
    hold_up(waiting, step, 1, &StepRecord::forward_ms, 1'200);
    for (StepRecord& row : waiting.record.steps) {
      if (row.step == step && row.rank == 0) {
        row.max_length = 20;
        row.backward_ms += row.wait_ms + 1;
        row.wait_ms = 0;
      }
    }
  }
  CHECK(without_stalls(std::vector{waiting}).stalls.per_step == 0);
  // One among the known shapes: they are what comes now and then.
  hold_up(run, 30, 0, &StepRecord::forward_ms, 1'200);
  CHECK(without_stalls(std::vector{run}).stalls.per_step == Approx(4.0 / kSteps));
  // One alone may be chance: 11 of 40.
  RecordedRun once = steady_run();
  hold_up(once, 7, 1, &StepRecord::backward_ms, 1'200);
  CHECK(without_stalls(std::vector{once}).stalls.per_step == Approx(1.0 / kSteps));
  // Those of less than two steps may be other programs'.
  RecordedRun shorter = steady_run();
  for (const int step : {4, 7, 9}) {
    hold_up(shorter, step, 1, &StepRecord::backward_ms, 180);
  }
  CHECK(without_stalls(std::vector{shorter}).stalls.per_step == Approx(3.0 / kSteps));
  // And a stall before the forward has nothing to do with shapes.
  RecordedRun data = steady_run();
  for (const int step : {4, 7, 9}) {
    hold_up(data, step, 1, &StepRecord::data_ms, 1'200);
  }
  CHECK(without_stalls(std::vector{data}).stalls.per_step == Approx(3.0 / kSteps));
}

TEST_CASE("stalls: a slow first step of a short record is cut, and stays in the fit") {
  RecordedRun run = steady_run();
  run.record.steps.resize(2 * 5);  // Ten rows, the fewest that are fitted.
  const RecordedRun before = run;
  hold_up(run, 0, 0, &StepRecord::forward_ms, 500);
  const SteadyRuns steady = without_stalls(std::vector{run});
  CHECK(steady.runs.front().record.warmup_steps == 0);
  CHECK(steady.stalls.per_step == 0);
  CHECK(steady.runs.front().record.steps.front().forward_ms ==
        Approx(before.record.steps.front().forward_ms).epsilon(0.2));
  RecordedRun longer = steady_run();
  hold_up(longer, 0, 0, &StepRecord::forward_ms, 500);
  CHECK(without_stalls(std::vector{longer}).runs.front().record.warmup_steps == 1);
}

}  // namespace
}  // namespace stepsim

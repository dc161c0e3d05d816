// What steps leave exposed of their all-reduces, where no buckets were recorded.
#include "calibrate/import/recorded/recorded_exposure.h"

#include <vector>

#include <doctest/doctest.h>

#include "calibrate/import/recorded/recorded_buckets.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/transformer.h"
#include "costmodel/network/collective_table.h"
#include "tests/approx.h"
#include "tests/calibrate/import/recorded_training.h"

using namespace stepsim;
using namespace stepsim::test;

TEST_CASE("without recorded buckets all-reduces are scaled to what the steps left exposed") {
  const MadeTraining training;  // Its second bucket's 0.5 ms are exposed, the first one hides.
  const std::vector<RecordedRun> runs = {made_run(training)};
  const RecordedCosts costs = fit_recorded_runs(runs);
  REQUIRE(costs.exposures.size() == 38);
  for (const RecordedExposure& step : costs.exposures) {
    CHECK(step.exposed_seconds == Approx(training.second_reduce));
  }
  const Plan& plan = runs[0].plan;
  const std::vector<double> shares =
      launch_shares(plan, step_ops(plan.model).backward, costs.exposures[0].batch, 8);
  REQUIRE(shares.size() == 2);
  CHECK(shares[0] < 1);
  CHECK(shares[1] == Approx(1));
  const std::vector<Parameter> all = parameters(plan.model);
  const std::int64_t elements = sum_of(
      plan.buckets[1], [&](int parameter) { return all[std::size_t(parameter)].elements(); });
  const auto seconds = [&](const Profile& profile) {
    return table_cost(profile.collectives.front(), Bytes(4 * elements), 4, "lab").seconds;
  };
  // A sweep that says 1 ms for every size is twice too long; without one the size has its time.
  Profile base;
  base.collectives.resize(1);
  base.collectives[0].ranks = 2;
  base.collectives[0].knots = {{1, 1e-3}, {1e9, 1e-3}};
  CHECK(seconds(recorded_profile(costs, runs, &base)) == Approx(5e-4));
  const Profile alone = recorded_profile(costs, runs, nullptr);
  REQUIRE(alone.collectives.size() == 1);
  CHECK(alone.collectives[0].ranks == 2);
  CHECK(seconds(alone) == Approx(5e-4));
  CHECK(*alone.collectives[0].errors.random < 1e-3);
}

TEST_CASE("what a step leaves exposed counts from the start of its last rank") {
  RecordedRun run = made_run({});
  RecordedRun other_hosts = run;
  for (StepRecord& row : run.record.steps) {
    if (row.rank == 1) {  // It starts 0.2 ms late and ends with the others.
      row.start_ms += 0.2;
      row.backward_ms -= 0.2;
    }
  }
  for (const RecordedExposure& step : fit_recorded_runs(std::vector{run}).exposures) {
    CHECK(step.exposed_seconds == Approx(3e-4));
  }
  for (StepRecord& row : other_hosts.record.steps) {
    row.start_ms += row.rank == 1 ? 1e7 : 0;  // Clocks of two hosts: only waits can be compared.
  }
  for (const RecordedExposure& step : fit_recorded_runs(std::vector{other_hosts}).exposures) {
    CHECK(step.exposed_seconds == Approx(5e-4));
  }
}

TEST_CASE("all-reduces that the steps hardly tell have an error that predictions can draw") {
  const std::vector<RecordedRun> runs = {made_run({})};
  RecordedCosts costs = fit_recorded_runs(runs);
  for (std::size_t i = 0; i < costs.exposures.size(); ++i) {
    costs.exposures[i].exposed_seconds = i < 5 ? 0.1 : 1e-6;  // Something else slowed these.
  }
  const Profile profile = recorded_profile(costs, runs, nullptr);
  CHECK(*profile.collectives.front().errors.random == Approx(1));
}

TEST_CASE("steps that left nothing exposed have all-reduces that take no time") {
  MadeTraining training;
  training.first_reduce = training.second_reduce = 0;
  const std::vector<RecordedRun> runs = {made_run(training)};
  const Profile profile = recorded_profile(fit_recorded_runs(runs), runs, nullptr);
  REQUIRE(profile.collectives.size() == 1);
  CHECK(profile.collectives[0].knots.back().second < 1e-6);
}

// What first meetings of shapes cost, planted in made trainings and found again.
#include "calibrate/import/recorded/recorded_shapes.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/import/recorded/recorded_meetings.h"
#include "tests/approx.h"
#include "tests/calibrate/import/recorded_training.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

MadeTraining shapes_training(Recorded recorded, int ranks) {
  MadeTraining training;
  training.recorded = recorded;
  training.ranks = ranks;
  training.steps = 160;
  training.samples = 8;
  training.round_length = 8;
  return training;
}

bool any_text_holds(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
    return text.find(part) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("planted costs of new shapes are found, however the backward is recorded") {
  for (const Recorded recorded : {Recorded::ProcessorTimes, Recorded::Buckets, Recorded::Nothing}) {
    for (const double planted : {5e-3, 50e-3}) {
      CAPTURE(static_cast<int>(recorded));
      CAPTURE(planted);
      MadeTraining training = shapes_training(recorded, recorded == Recorded::Nothing ? 1 : 2);
      training.noise = 0.03;
      training.new_plan = planted;
      const RecordedCosts costs = fit_recorded_runs(std::vector{made_run(training)});
      REQUIRE(costs.new_shapes.size() == 1);
      const ShapeCost& cost = costs.new_shapes.front();
      CHECK(cost.forward_seconds == Approx(planted).epsilon(0.05));
      CHECK(cost.backward_seconds == Approx(planted).epsilon(0.05));
      CHECK_FALSE(cost.shared);
      CHECK(cost.relative_error < 0.05);
      CHECK(any_text_holds(costs.notes, "new shapes: a pair of samples and padded length"));
      // The passes are those without first meetings, whose steps are left out.
      CHECK(costs.steps < 150);
      CHECK(costs.steps >= 80);
      const BatchShape batch{8, 200, 1200, 0};
      CHECK(pass_seconds(costs.model.forward, costs.model.forward.coefficients, batch, false) ==
            Approx(made_forward(batch)).epsilon(0.03));
    }
  }
}

TEST_CASE("two mechanisms are told apart, one of each rank and one that all share") {
  MadeTraining training = shapes_training(Recorded::ProcessorTimes, 2);
  training.steps = 400;
  training.samples = 0;  // Pairs of samples and length are many more than lengths.
  training.round_length = 16;
  training.noise = 0.03;
  training.new_plan = 5e-3;
  training.new_graph = 20e-3;
  const RecordedShapes shapes = fit_recorded_shapes(std::vector{made_run(training)});
  REQUIRE(shapes.costs.size() == 2);
  const bool first_shared = shapes.costs.front().shared;
  const ShapeCost& shared = shapes.costs[first_shared ? 0 : 1];
  const ShapeCost& own = shapes.costs[first_shared ? 1 : 0];
  CHECK(shared.shared);
  CHECK(shared.key == ShapeKey::Length);
  CHECK(shared.seconds() == Approx(20e-3).epsilon(0.05));
  CHECK_FALSE(own.shared);
  CHECK(own.key == ShapeKey::SamplesAndLength);
  CHECK(own.seconds() == Approx(10e-3).epsilon(0.05));
}

TEST_CASE("where nothing is planted nothing is found") {
  for (const int ranks : {1, 2, 4}) {
    MadeTraining training = shapes_training(Recorded::ProcessorTimes, ranks);
    training.noise = 0.1;
    const RecordedCosts costs = fit_recorded_runs(std::vector{made_run(training)});
    CHECK(costs.new_shapes.empty());
    CHECK(costs.steps == 158);
  }
}

TEST_CASE("a record in which every step has a new shape tells nothing of its cost") {
  MadeTraining training = shapes_training(Recorded::ProcessorTimes, 1);
  training.steps = 40;
  training.samples = 0;
  training.round_length = 1;
  training.new_plan = 50e-3;
  const RecordedCosts costs = fit_recorded_runs(std::vector{made_run(training)});
  CHECK(costs.new_shapes.empty());
  CHECK(any_text_holds(costs.warnings, "cannot be told from what its size does"));
}

TEST_CASE("a record of a single shape has nothing to tell, and says nothing") {
  MadeTraining training = shapes_training(Recorded::ProcessorTimes, 2);
  training.round_length = 256;
  training.new_plan = 50e-3;
  const RecordedCosts costs = fit_recorded_runs(std::vector{made_run(training)});
  CHECK(costs.new_shapes.empty());
  CHECK_FALSE(any_text_holds(costs.warnings, "shape"));
}

TEST_CASE("records of one process share its caches, those of others begin anew") {
  MadeTraining training = shapes_training(Recorded::ProcessorTimes, 1);
  const RecordedRun first = made_run(training);
  RecordedRun overlapping = first;
  for (StepRecord& row : overlapping.record.steps) {
    row.start_ms += 1;
  }
  RecordedRun later = first;
  for (StepRecord& row : later.record.steps) {
    row.start_ms += 1e9;
  }
  const std::vector<ShapeCost> mechanisms = possible_mechanisms(1);
  const auto meetings = [&](const std::vector<RecordedRun>& runs) {
    double count = 0;
    for (const MetStep& step : met_steps(runs, mechanisms)) {
      count += step.ranks.front().meetings.front();
    }
    return count;
  };
  const double once = meetings({first});
  CHECK(once > 5);
  CHECK(meetings({first, overlapping}) == once);
  CHECK(meetings({first, later}) == 2 * once);
}

TEST_CASE("records of two machines whose clocks overlap are of two processes") {
  MadeTraining training = shapes_training(Recorded::ProcessorTimes, 1);
  std::vector<RecordedRun> runs = {made_run(training), made_run(training)};
  const auto first_meetings = [&] {
    std::vector<double> counts(2);
    for (const MetStep& step : met_steps(runs, std::vector<ShapeCost>(1))) {
      counts[step.run] += step.ranks.front().meetings.front();
    }
    return counts;
  };
  runs[0].record.started_at = runs[1].record.started_at = "2026-11-26T07:37:00Z";
  const std::vector<double> together = first_meetings();
  CHECK(together[0] > 0);
  CHECK(together[1] == 0);  // They take turns, and the first has met all.
  runs[1].record.started_at = "2026-11-26T07:48:00Z";
  CHECK(first_meetings() == std::vector{together[0], together[0]});
  runs[1].record.started_at = runs[0].record.started_at;
  runs[1].record.host = "another";
  CHECK(first_meetings() == std::vector{together[0], together[0]});
}

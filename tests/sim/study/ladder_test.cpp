// What ways to pad make of an epoch, against counts by hand and by other code.
#include "sim/study/ladder.h"

#include <fstream>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/predict/batch_plan.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_cost.h"
#include "tests/approx.h"
#include "tests/test_data.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

/// Samples in their order on two ranks, one a batch; the model is priced by a shipped profile.
Scenario ordered(const std::vector<std::int64_t>& lengths,
                 const std::string& policy = "kind = \"fixed\"\nbatch_size = 1\n",
                 const std::vector<std::string>& overrides = {}) {
  const std::string folder = test::fresh_folder();
  std::ofstream file(folder + "/lengths.txt");
  for (const std::int64_t length : lengths) {
    file << length << "\n";
  }
  const std::string text = R"([scenario]
name = "ordered"
steps = 2

[cluster]
ranks = 2
all_reduce = { sizes = ["1 MiB", "1 GiB"], times = ["0.1 ms", "5 ms"] }
profile = ")" + test::source_root() +
                           R"(/scenarios/profiles/h100_8x_published.json"

[model]
preset = "bert-base"
dtype = "bf16"
attention = "flash"

[data]
lengths = { file = "lengths.txt" }
sampler = { shuffle = false }

[[policy]]
name = "one"
)" + policy;
  return parse_scenario(text, folder + "/ordered.toml", overrides);
}

LadderStudy study(const Scenario& scenario, const LadderOptions& options) {
  return study_ladders(Job(scenario, scenario.policies.front(), scenario_profile(scenario)),
                       options);
}

LadderOptions costing(double seconds) {
  LadderOptions options;
  options.shape_seconds = seconds;
  return options;
}

/// This is the price of a batch of one sample, in seconds.
double seconds_of(const Scenario& scenario, std::int64_t length) {
  const StepCost cost = step_cost(scenario, scenario_profile(scenario));
  BatchShape shape;
  shape.samples = 1;
  shape.max_length = length;
  return static_cast<double>(cost(shape)) * 1e-9;
}

const std::vector<std::int64_t> kEight = {10, 10, 20, 10, 10, 30, 20, 30};

}  // namespace

TEST_CASE("a step waits for the rank with most new shapes and for the one that computes most") {
  // Rank 0 runs 10, 20, 10, 20 tokens, rank 1 10, 10, 30, 30.
  const Scenario scenario = ordered(kEight);
  LadderOptions options = costing(0.25);
  options.multiples = {16};
  options.rungs = {1};
  const LadderStudy result = study(scenario, options);
  REQUIRE(result.rows.size() == 4);
  CHECK(result.steps == 4);
  CHECK(result.batch_sizes == 1);
  const PaddedEpoch& longest = result.rows[0];
  CHECK(longest.rule == PaddingRule::Longest);
  CHECK(longest.lengths == 3);
  CHECK(longest.shapes == 3);
  CHECK(longest.shapes_per_rank == 2);
  CHECK(longest.padding_ratio == 0);
  CHECK(longest.shape_seconds == 0.75);  // In steps 0 (both ranks), 1 and 2.
  CHECK(longest.compute_seconds ==
        Approx(seconds_of(scenario, 10) + seconds_of(scenario, 20) + 2 * seconds_of(scenario, 30)));
  CHECK(longest.step_ms == Approx(longest.steady_step_ms + 750.0 / 4));
  const PaddedEpoch& multiple = result.rows[1];  // 16 and 32.
  CHECK(multiple.lengths == 2);
  CHECK(multiple.shape_seconds == 0.75);
  CHECK(multiple.padding_ratio == Approx(1 - 140.0 / (4 * 16 + 4 * 32)));
  const PaddedEpoch& one = result.rows[2];
  CHECK(one.rungs == std::vector<std::int64_t>{30});
  CHECK(one.shapes == 1);
  CHECK(one.shape_seconds == 0.25);
  CHECK(one.compute_seconds == Approx(4 * seconds_of(scenario, 30)));
  CHECK(result.rows[3].rungs == one.rungs);
  CHECK(result.best == 2);
}

TEST_CASE("micro-batches of one step add up, new shapes too") {
  const Scenario scenario =
      ordered(kEight, "kind = \"fixed\"\nbatch_size = 1\n", {"ddp={accumulation_steps=2}"});
  const LadderStudy result = study(scenario, costing(1));
  CHECK(result.steps == 2);
  CHECK(result.rows[0].shape_seconds == 3);  // Rank 0 meets 10 and 20, then rank 1 meets 30.
  CHECK(result.rows[0].compute_seconds ==
        Approx(seconds_of(scenario, 10) + seconds_of(scenario, 20) + 2 * seconds_of(scenario, 30)));
}

TEST_CASE("nothing is padded where shapes cost next to nothing") {
  const LadderStudy result = study(ordered({10, 100, 200, 10, 100, 300, 200, 300}), costing(1e-9));
  CHECK(result.rows.back().rungs == std::vector<std::int64_t>{10, 100, 200, 300});
  CHECK(result.best == 0);
}

TEST_CASE("a key of lengths does not count numbers of samples") {
  // On each rank two batches of two samples and one of one, of 10 tokens but for one batch.
  const Scenario scenario =
      ordered({10, 10, 10, 10, 10, 20, 10, 10, 10, 10}, "kind = \"fixed\"\nbatch_size = 2\n");
  LadderOptions options = costing(1);
  const LadderStudy both = study(scenario, options);
  CHECK(both.steps == 3);
  CHECK(both.batch_sizes == 2);
  CHECK(both.rows[0].shapes == 3);
  CHECK(both.rows[0].shapes_per_rank == 2.5);
  CHECK(both.rows.back().shapes == 2);
  options.key = ShapeKey::Length;
  const LadderStudy lengths = study(scenario, options);
  CHECK(lengths.rows[0].shapes == 2);
  CHECK(lengths.rows[0].shapes_per_rank == 1.5);
  CHECK(lengths.rows.back().shapes == 1);
}

TEST_CASE("shapes are those that the first epoch's effects count") {
  const std::vector<std::string> few = {"data.samples=1600"};
  const Scenario scenario = read_scenario(test::source_root() + "/scenarios/ladders.toml", few);
  const BatchingPolicy& policy = scenario.policies.front();
  LadderOptions options = costing(0.005);
  options.multiples = {64};
  options.rungs = {4};
  const LadderStudy result = study(scenario, options);
  REQUIRE(result.rows.size() == 4);
  for (const PaddedEpoch& row : result.rows) {
    const bool multiple = row.rule == PaddingRule::Multiple;
    const BatchingPolicy padded = policy.with_padding(multiple ? row.number : 1, row.rungs);
    const PlannedPolicy planned = plan_policy(scenario, padded, {});
    CHECK(row.shapes == first_epoch_effects(scenario, padded, planned).distinct_shapes);
  }
  CHECK(result.rows[2].rungs.size() <= 4);
  CHECK(result.rows[2].step_ms <= result.rows[0].step_ms);
  CHECK(result.rows[3].step_ms <= result.rows[2].step_ms);
}

TEST_CASE("the last rung holds the longest sample, also where the epoch drops it") {
  const Scenario scenario = ordered({10, 20, 10, 20, 90},
                                    "kind = \"fixed\"\nbatch_size = 2\n",
                                    {"data.sampler={shuffle=false, drop_last=true}"});
  const LadderStudy result = study(scenario, costing(1e-6));
  CHECK(result.steps == 1);
  CHECK(result.rows[0].lengths == 2);
  CHECK(result.rows.back().rungs.back() == 90);
}

TEST_CASE("rungs are multiples of the step, and no longer than the model takes") {
  LadderOptions options = costing(1e-6);
  options.step = 100;
  options.multiples = {1000};
  const LadderStudy result = study(ordered({10, 110, 310, 510, 20, 30}), options);
  CHECK(result.rows.back().rungs == std::vector<std::int64_t>{100, 200, 400, 512});
  CHECK(result.rows[1].refused.find("a sample is 1000 tokens long, but model 'bert-base'") !=
        std::string::npos);
}

TEST_CASE("the scenario's own padding is a row of its own") {
  const std::string fixed = "kind = \"fixed\"\nbatch_size = 1\n";
  LadderStudy result = study(ordered(kEight, fixed + "pad_to_lengths = [20, 40]\n"), costing(1e-9));
  REQUIRE(result.rows.size() == 3);
  CHECK(result.rows[0].lengths == 3);
  CHECK(result.rows[1].rule == PaddingRule::Own);
  CHECK(result.rows[1].rungs == std::vector<std::int64_t>{20, 40});
  CHECK(result.rows[1].lengths == 2);
  result = study(ordered(kEight, fixed + "pad_to_multiple_of = 32\n"), costing(1e-9));
  CHECK(result.rows[1].lengths == 1);
  // A ladder that has become too short is no reason to give no other.
  result = study(ordered(kEight, fixed + "pad_to_lengths = [20]\n"), costing(1e-9));
  CHECK(result.rows[1].refused ==
        "a sample is 30 tokens long, but the longest of pad_to_lengths is 20");
  CHECK(result.best == 0);
}

TEST_CASE("policies without a padded length are left out, with the reason") {
  const std::string fixed = "kind = \"fixed\"\nbatch_size = 1\n";
  CHECK(study(ordered(kEight, fixed + "attention = \"varlen\"\n"), costing(1)).skipped ==
        "attention = \"varlen\" pads nothing");
  CHECK(study(ordered(kEight, fixed + "row_length = 64\n"), costing(1)).skipped ==
        "its samples fill rows of 64 tokens");
  CHECK(study(ordered(kEight, fixed, {"ddp={accumulation_steps=8}"}), costing(1)).skipped ==
        "its epoch has not one whole step");
}

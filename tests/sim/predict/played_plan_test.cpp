// kind = "plan": the batches of a plan file or a run record, played as they are.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/records/run_record.h"
#include "sim/predict/predict.h"
#include "sim/study/recommendation.h"
#include "tests/sim/predict/plan_of.h"
#include "tests/sim/predict/predict_quietly.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;

namespace {

const std::string kPlayedPolicies = R"([[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
weighting = "token"
pad_to_multiple_of = 8
[[policy]]
name = "rows"
kind = "packed_next_fit"
capacity = 128
row_length = 32
attention = "flash"
[[policy]]
name = "varlen"
kind = "packed_next_fit"
capacity = 128
attention = "varlen"
[[policy]]
name = "pieces"
kind = "packed_stream"
num_tokens_local = 96
max_seq_len = 40
attention = "varlen"
)";

Scenario playing(const std::string& path,
                 const std::string& keys = "",
                 const std::vector<std::string>& overrides = {}) {
  const std::string text =
      fmt::format("{}[[policy]]\nname = \"played\"\nkind = \"plan\"\nfile = \"{}\"\n{}",
                  test::kDecoderText,
                  path,
                  keys);
  return parse_scenario(text, "s.toml", overrides);
}

std::string played_error(const std::string& path,
                         const std::string& keys,
                         const std::vector<std::string>& overrides) {
  return test::error_of([&] {
    const Scenario scenario = playing(path, keys, overrides);
    (void)test::predict_quietly(scenario, "played");
  });
}

/// Rows with the sample ids left out: a played plan counts its samples anew.
std::vector<MicroBatch> without_ids(std::vector<MicroBatch> batches) {
  for (MicroBatch& batch : batches) {
    batch.samples.clear();
  }
  return batches;
}

RunRecord record_of(const Plan& plan) {
  RunRecord record;
  record.scenario = "mine";
  record.policy = "custom";
  record.world_size = plan.ranks;
  record.repeats = 2;
  for (int repeat = 0; repeat < record.repeats; ++repeat) {
    for (const MicroBatch& batch : plan.micro_batches) {
      const BatchShape shape = batch.shape();
      StepRecord& step = record.steps.emplace_back();
      step.repeat = repeat;
      step.step = batch.step + 3;  // The recorder was started late.
      step.rank = batch.rank;
      step.samples = std::ssize(batch.samples);
      step.lengths = batch.lengths;
      step.max_length = shape.max_length;
      step.useful_tokens = shape.useful_tokens;
      step.padded_tokens = shape.padded_tokens();
      step.step_ms = 10;
    }
  }
  return record;
}

}  // namespace

TEST_CASE("a plan that is played is the plan that was written") {
  const Scenario scenario = parse_scenario(test::kDecoderText + kPlayedPolicies, "s.toml");
  for (const BatchingPolicy& policy : scenario.policies) {
    CAPTURE(policy.name());
    const std::string file = test::fresh_folder() + "/plan.jsonl";
    const Plan written = test::plan_of(scenario, policy);
    write_plan(file, written);
    const Scenario played = playing(file);
    const Plan again = test::plan_of(played, played.policies[0]);
    CHECK(without_ids(again.micro_batches) == without_ids(written.micro_batches));
    CHECK(again.model.attention == written.model.attention);
    CHECK(again.buckets == written.buckets);
    const Prediction before = test::predict_quietly(scenario, policy.name());
    const Prediction after = test::predict_quietly(played, "played");
    CHECK(after.summary.step_time_ms.mean == before.summary.step_time_ms.mean);
    CHECK(after.summary.useful_tokens_per_step == before.summary.useful_tokens_per_step);
  }
}

TEST_CASE("a record is played by its first repeat, and again from the start where it ends") {
  const Scenario scenario = parse_scenario(test::kDecoderText + kPlayedPolicies, "s.toml");
  const Plan plan = test::plan_of(scenario, find_policy(scenario, "fixed"));
  const std::string file = test::fresh_folder() + "/record.jsonl";
  write_run_record(file, record_of(plan));
  const Scenario played = playing(file, "", {"scenario.steps=30"});
  const Plan again = test::plan_of(played, played.policies[0]);
  REQUIRE(again.steps == 30);
  REQUIRE(again.micro_batches.size() == 60);
  for (std::size_t i = 0; i < again.micro_batches.size(); ++i) {
    const MicroBatch& original = plan.micro_batches[i % plan.micro_batches.size()];
    CHECK(again.micro_batches[i].lengths == original.lengths);
    CHECK(again.micro_batches[i].shape().max_length == original.shape().max_length);
    CHECK(again.micro_batches[i].step == static_cast<int>(i) / 2);
  }
  // Its samples are a data set for other policies.
  const std::vector<std::string> overrides = {fmt::format("data.lengths={{ plan = \"{}\" }}", file),
                                              "data.samples=96"};
  const Scenario fixed = parse_scenario(test::kDecoderText + kPlayedPolicies, "s.toml", overrides);
  CHECK(data_lengths(fixed, fixed.policies[0]) == data_lengths(played, played.policies[0]));
}

TEST_CASE("training effects of a played plan: what it loses and repeats") {
  const Scenario scenario = parse_scenario(test::kDecoderText + kPlayedPolicies, "s.toml");
  const Plan plan = test::plan_of(scenario, find_policy(scenario, "fixed"));
  const std::string file = test::fresh_folder() + "/plan.jsonl";
  write_plan(file, plan);
  const Scenario played = playing(file);
  const BatchingPolicy& policy = played.policies[0];
  const TrainingEffects effects =
      first_epoch_effects(played, policy, plan_policy(played, policy, {}));
  CHECK(effects.samples == 64);
  CHECK(effects.lost_samples == 0);
  CHECK(effects.repeated_samples == 32);  // 12 steps of 8 samples.
  CHECK(effects.most_steps == 12);
}

TEST_CASE("a policy on data of its own is recommended where the scenario says so") {
  const Scenario scenario = parse_scenario(test::kDecoderText + kPlayedPolicies, "s.toml");
  const std::string file = test::fresh_folder() + "/plan.jsonl";
  write_plan(file, test::plan_of(scenario, find_policy(scenario, "varlen")));
  const Scenario played = playing(file);
  CHECK(is_reference(played, "played"));
  CHECK(recommend(played, {test::predict_quietly(played, "played")}).choices.empty());
  const Scenario chosen = playing(file, "reference = false\n");
  CHECK_FALSE(is_reference(chosen, "played"));
  CHECK(recommend(chosen, {test::predict_quietly(chosen, "played")}).choices.size() == 1);
}

TEST_CASE("a file that cannot be played: what is wrong, and what to change") {
  const Scenario scenario = parse_scenario(test::kDecoderText + kPlayedPolicies, "s.toml");
  const Plan plan = test::plan_of(scenario, find_policy(scenario, "fixed"));
  const std::string file = test::fresh_folder() + "/plan.jsonl";
  write_plan(file, plan);
  CHECK(played_error(file, "", {"cluster.ranks=4"})
            .find("holds batches of 2 ranks, the scenario has 4; set cluster.ranks = 2") !=
        std::string::npos);
  CHECK(played_error(file, "", {"ddp.accumulation_steps=2"})
            .find("has 1 micro-batches, the scenario accumulates 2") != std::string::npos);
  CHECK(played_error(file, "weighting = \"token\"\n", {})
            .find("weighting: does not apply to policy kind 'plan'") != std::string::npos);
  CHECK(played_error(file, "", {"model.max_length=16"}).find("takes at most 16") !=
        std::string::npos);
  CHECK(played_error("/nowhere/plan.jsonl", "", {}).find("/nowhere/plan.jsonl") !=
        std::string::npos);
  CHECK_THROWS_WITH_AS(
      (void)parse_scenario(test::kDecoderText + "[[policy]]\nname = \"p\"\nkind = \"plan\"\n",
                           "s.toml"),
      doctest::Contains("needs file, a plan or a run record"),
      InputError);
  RunRecord record = record_of(plan);
  for (StepRecord& step : record.steps) {
    step.lengths.clear();
  }
  const std::string without = test::fresh_folder() + "/without.jsonl";
  write_run_record(without, record);
  CHECK(played_error(without, "", {}).find("record with step(lengths=…)") != std::string::npos);
}

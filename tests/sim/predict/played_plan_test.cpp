// kind = "plan": the batches of a plan file or a run record, played as they are.
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <unistd.h>

#include "costmodel/base/input_error.h"
#include "costmodel/records/run_record.h"
#include "sim/predict/predict.h"
#include "sim/study/recommendation.h"
#include "tests/sim/predict/plan_of.h"

using namespace stepsim;

namespace {

const std::string kPlayedScenario = R"([scenario]
name = "s"
steps = 12
warmup_steps = 0
[cluster]
ranks = 2
topology = { algorithm = "ring", intra_latency = "0 us", intra_bandwidth = "4 GB/s" }
[times]
forward = "10 ms"
backward = "20 ms"
[model]
kind = "gpt2"
layers = 2
hidden = 64
heads = 4
vocab = 100
max_length = 128
[data]
samples = 64
lengths = { uniform = [4, 60] }
)";

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

/// A file of this test, which is removed at the end.
struct TemporaryFile {
  explicit TemporaryFile(const std::string& name)
      : path((std::filesystem::temp_directory_path() /
              fmt::format("stepsim-played-{}-{}", ::getpid(), name))
                 .string()) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string path;
};

Scenario playing(const std::string& path,
                 const std::string& keys = "",
                 const std::vector<std::string>& overrides = {}) {
  const std::string text =
      fmt::format("{}[[policy]]\nname = \"played\"\nkind = \"plan\"\nfile = \"{}\"\n{}",
                  kPlayedScenario,
                  path,
                  keys);
  return parse_scenario(text, "s.toml", overrides);
}

Prediction run_played(const Scenario& scenario, const std::string& policy) {
  PredictOptions options;
  options.noise_runs = 0;
  return predict(scenario, find_policy(scenario, policy), scenario_profile(scenario), options);
}

std::string played_error(const std::string& path,
                         const std::string& keys,
                         const std::vector<std::string>& overrides) {
  try {
    const Scenario scenario = playing(path, keys, overrides);
    (void)run_played(scenario, "played");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
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
  const Scenario scenario = parse_scenario(kPlayedScenario + kPlayedPolicies, "s.toml");
  for (const BatchingPolicy& policy : scenario.policies) {
    CAPTURE(policy.name());
    const TemporaryFile file("plan.jsonl");
    const Plan written = test::plan_of(scenario, policy);
    write_plan(file.path, written);
    const Scenario played = playing(file.path);
    const Plan again = test::plan_of(played, played.policies[0]);
    CHECK(without_ids(again.micro_batches) == without_ids(written.micro_batches));
    CHECK(again.model.attention == written.model.attention);
    CHECK(again.buckets == written.buckets);
    const Prediction before = run_played(scenario, policy.name());
    const Prediction after = run_played(played, "played");
    CHECK(after.summary.step_time_ms.mean == before.summary.step_time_ms.mean);
    CHECK(after.summary.useful_tokens_per_step == before.summary.useful_tokens_per_step);
  }
}

TEST_CASE("a record is played by its first repeat, and again from the start where it ends") {
  const Scenario scenario = parse_scenario(kPlayedScenario + kPlayedPolicies, "s.toml");
  const Plan plan = test::plan_of(scenario, find_policy(scenario, "fixed"));
  const TemporaryFile file("record.jsonl");
  write_run_record(file.path, record_of(plan));
  const Scenario played = playing(file.path, "", {"scenario.steps=30"});
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
  const std::vector<std::string> overrides = {
      fmt::format("data.lengths={{ plan = \"{}\" }}", file.path), "data.samples=96"};
  const Scenario fixed = parse_scenario(kPlayedScenario + kPlayedPolicies, "s.toml", overrides);
  CHECK(data_lengths(fixed, fixed.policies[0]) == data_lengths(played, played.policies[0]));
}

TEST_CASE("training effects of a played plan: what it loses and repeats") {
  const Scenario scenario = parse_scenario(kPlayedScenario + kPlayedPolicies, "s.toml");
  const Plan plan = test::plan_of(scenario, find_policy(scenario, "fixed"));
  const TemporaryFile file("plan.jsonl");
  write_plan(file.path, plan);
  const Scenario played = playing(file.path);
  const BatchingPolicy& policy = played.policies[0];
  const TrainingEffects effects =
      first_epoch_effects(played, policy, plan_policy(played, policy, {}));
  CHECK(effects.samples == 64);
  CHECK(effects.lost_samples == 0);
  CHECK(effects.repeated_samples == 32);  // 12 steps of 8 samples.
  CHECK(effects.most_steps == 12);
}

TEST_CASE("a policy on data of its own is recommended where the scenario says so") {
  const Scenario scenario = parse_scenario(kPlayedScenario + kPlayedPolicies, "s.toml");
  const TemporaryFile file("plan.jsonl");
  write_plan(file.path, test::plan_of(scenario, find_policy(scenario, "varlen")));
  const Scenario played = playing(file.path);
  CHECK(is_reference(played, "played"));
  CHECK(recommend(played, {run_played(played, "played")}).choices.empty());
  const Scenario chosen = playing(file.path, "reference = false\n");
  CHECK_FALSE(is_reference(chosen, "played"));
  CHECK(recommend(chosen, {run_played(chosen, "played")}).choices.size() == 1);
}

TEST_CASE("a file that cannot be played: what is wrong, and what to change") {
  const Scenario scenario = parse_scenario(kPlayedScenario + kPlayedPolicies, "s.toml");
  const Plan plan = test::plan_of(scenario, find_policy(scenario, "fixed"));
  const TemporaryFile file("plan.jsonl");
  write_plan(file.path, plan);
  CHECK(played_error(file.path, "", {"cluster.ranks=4"})
            .find("holds batches of 2 ranks, the scenario has 4; set cluster.ranks = 2") !=
        std::string::npos);
  CHECK(played_error(file.path, "", {"ddp.accumulation_steps=2"})
            .find("has 1 micro-batches, the scenario accumulates 2") != std::string::npos);
  CHECK(played_error(file.path, "weighting = \"token\"\n", {})
            .find("weighting: does not apply to policy kind 'plan'") != std::string::npos);
  CHECK(played_error(file.path, "", {"model.max_length=16"}).find("takes at most 16") !=
        std::string::npos);
  CHECK(played_error("/nowhere/plan.jsonl", "", {}).find("/nowhere/plan.jsonl") !=
        std::string::npos);
  CHECK_THROWS_WITH_AS(
      (void)parse_scenario(kPlayedScenario + "[[policy]]\nname = \"p\"\nkind = \"plan\"\n",
                           "s.toml"),
      doctest::Contains("needs file, a plan or a run record"),
      InputError);
  RunRecord record = record_of(plan);
  for (StepRecord& step : record.steps) {
    step.lengths.clear();
  }
  const TemporaryFile without("without.jsonl");
  write_run_record(without.path, record);
  CHECK(played_error(without.path, "", {}).find("record with step(lengths=…)") !=
        std::string::npos);
}

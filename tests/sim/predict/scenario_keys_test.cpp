// No key of the scenario file is ignored by the fast path: the recurrence gives the figures of the
// event engine for every key, or leaves the scenario to the engine.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "sim/batching/policies/policy_table.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/jobs.h"
#include "sim/predict/scenario_profile.h"
#include "sim/scenario/key_table.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"
#include "tests/sim/predict/key_changes.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

/// Ten blocks by measured times on two nodes of two ranks.
const std::string kBlocksScenario = R"(
[scenario]
name = "keys"
steps = 12
warmup_steps = 4
[cluster]
ranks = 4
ranks_per_node = 2
topology = { algorithm = "ring", intra_latency = "5 us", intra_bandwidth = "8 GB/s", inter_latency = "9 us", inter_bandwidth = "4 GB/s" }
[times]
forward = "10 ms"
backward = "20 ms"
optimizer = "5 ms"
tokens = 40
[model]
kind = "blocks"
layers = 10
block_elements = 1_000_000
[data]
samples = 256
lengths = { uniform = [4, 16] }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
)";

/// A small decoder by a profile.
std::string decoder() {
  return R"(
[scenario]
name = "keys"
steps = 12
warmup_steps = 4
[cluster]
ranks = 4
topology = { algorithm = "ring", intra_latency = "5 us", intra_bandwidth = "20 GB/s" }
profile = ")" +
         path_of_prices(1) + R"("
[model]
kind = "gpt2"
layers = 2
hidden = 512
heads = 8
vocab = 8192
max_length = 1024
dtype = "bf16"
attention = "flash"
[data]
samples = 512
lengths = { uniform = [256, 1024] }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 8
)";
}

/// Plays every step in the engine without changing what happens.
const std::string kEngineKeys = "host.queue_depth=1000000";

std::vector<double> figures_of(const PredictionSummary& summary) {
  return {summary.step_time_ms.mean,
          summary.step_time_ms.low90,
          summary.step_time_ms.high90,
          summary.step_time_ms.max,
          summary.data_ms,
          summary.forward_ms,
          summary.backward_ms,
          summary.optimizer_ms,
          summary.communication_ms,
          summary.useful_tokens_per_step,
          summary.padded_tokens_per_step,
          summary.peak_memory_mib};
}

/// The figures without noise, then those with it. A profile's noise is left out: the paths draw it
/// in another order.
std::vector<double> figures(const std::string& text, const Overrides& overrides, bool engine) {
  const Scenario scenario = parse_scenario(text, test::source_root() + "/keys.toml", overrides);
  const Profile profile = scenario_profile(scenario);
  PredictOptions options;
  options.engine = engine;
  std::vector<double> all;
  for (const int noise_runs : {0, scenario.times ? 4 : 0}) {
    options.noise_runs = noise_runs;
    const std::vector<double> some =
        figures_of(predict(scenario, scenario.policies.front(), profile, options).summary);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

/// Keys that shape the plan alone: it is made before a path is chosen, and both paths read it.
bool shapes_only_the_plan(const std::string& table, const std::string& key) {
  const auto parameters = policy_parameter_names();
  const bool parameter = std::find(parameters.begin(), parameters.end(), key) != parameters.end();
  return (table == "policy" && parameter) || table == "policy.varlen" ||
         (table == "model.varlen" && key == "overflow") || table.starts_with("policy.lengths") ||
         table.starts_with("data.targets") || table.starts_with("data.lengths.mixture") ||
         (table == "data" && key == "targets") ||
         (table == "data.lengths" &&
          (key == "histogram" || key == "file" || key == "jsonl" || key == "field" ||
           key == "plan" || key == "values" || key == "mixture"));
}

/// The override of a changed key; a list or a table is replaced as a whole.
std::string override_of(const KeyChange& change) {
  std::string key = change.key;
  const bool whole = change.after.starts_with("[{") || change.after.starts_with("{");
  for (const std::string owner : {"cluster.slow_ranks",
                                  "cluster.topology.slow_links",
                                  "data.delays",
                                  "new_shapes.mechanisms"}) {
    if (key.starts_with(owner + ".")) {
      key = owner;
    }
  }
  if (whole && key.starts_with("data.lengths.")) {
    key = "data.lengths";
  }
  if (key == "model.preset" || key == "model.config" || key == "model.tensors") {
    key = "model";
  }
  if (key.starts_with("policy.")) {
    key = "policy.fixed" + key.substr(6);
  }
  return key + "=" + change.after;
}

void check(const std::string& scenario, const KeyChange& change) {
  CAPTURE(change.key);
  const Overrides after = with(change.before, {override_of(change)});
  // The engine plays runs with noise where anything is not plain.
  const Overrides engine = change.key == "host.queue_depth" ? Overrides{} : Overrides{kEngineKeys};
  const auto fast_before = figures(scenario, change.before, false);
  const auto fast_after = figures(scenario, after, false);
  const auto engine_before = figures(scenario, with(change.before, engine), true);
  const auto engine_after = figures(scenario, with(after, engine), true);
  CHECK((engine_before != engine_after) == (change.effect == Effect::Figures));
  for (std::size_t i = 0; i < fast_before.size(); ++i) {
    CAPTURE(i);
    // Without noise the paths agree; the engine's noisy runs also play the rebuild of the second
    // step, which moves the ends of an interval of four runs.
    const double tolerance = i < fast_before.size() / 2 ? 1e-3 : 2e-2;
    CHECK(fast_before[i] == Approx(engine_before[i]).epsilon(tolerance));
    CHECK(fast_after[i] == Approx(engine_after[i]).epsilon(tolerance));
  }
}

/// A policy that plans by predicted time, beside the fixed one.
const std::string kTimedPolicy = R"(
[[policy]]
name = "timed"
kind = "planner"
cost = "step_time"
batch_size = 4
)";

/// The figures of a job, without noise and with it, and what its steps take one by one.
std::vector<double> all_figures(const Job& job) {
  PredictOptions options;
  options.noise_runs = 4;
  options.paired_draws = true;
  const Prediction prediction = predict(job, options);
  std::vector<double> all = figures_of(prediction.summary);
  all.insert(all.end(), prediction.paired_step_ms.begin(), prediction.paired_step_ms.end());
  for (const RankStepResult& row : prediction.steps) {
    all.push_back(row.step_ms);
  }
  return all;
}

/// "key=value" of a key without '='.
Setting setting_of(const std::string& text) {
  const std::size_t equals = text.find('=');
  return {text.substr(0, equals), text.substr(equals + 1)};
}

/// Predicts a job that shares all stages before the key's with one that has another value, and the
/// same job alone.
void check_shared_stages(const std::string& scenario, const KeyChange& change) {
  CAPTURE(change.key);
  const std::string path = test::source_root() + "/keys.toml";
  const Scenario before = parse_scenario(scenario, path, change.before);
  const Scenario after = parse_scenario(scenario, path, with(change.before, {override_of(change)}));
  Jobs jobs(before, "--over");
  for (std::size_t i = 0; i < before.policies.size(); ++i) {
    const BatchingPolicy& policy = after.policies[i];  // Its name may be what changes.
    CAPTURE(policy.name());
    (void)all_figures(jobs.job(before.policies[i].name(), {}));
    const std::vector<double> shared =
        all_figures(jobs.job(policy.name(), {setting_of(override_of(change))}));
    CHECK(shared == all_figures(Job(after, policy, scenario_profile(after))));
  }
}

}  // namespace

TEST_CASE("a job that shares stages with one of another value is predicted as alone") {
  for (const KeyChange& change : block_changes()) {
    check_shared_stages(kBlocksScenario + kTimedPolicy, change);
  }
  for (const KeyChange& change : shape_changes()) {
    check_shared_stages(kBlocksScenario, change);
  }
  const std::string scenario = decoder() + kTimedPolicy;
  for (const KeyChange& change : decoder_changes()) {
    check_shared_stages(scenario, change);
  }
}

TEST_CASE("jobs share the stages that their settings leave as they are") {
  const Scenario scenario =
      parse_scenario(decoder() + kTimedPolicy, test::source_root() + "/keys.toml", Overrides{});
  Jobs jobs(scenario, "--over");
  const auto shared = [&](const std::string& policy, const std::string& setting) {
    const RunStages own = jobs.job(policy, {}).stages();
    const RunStages stages = jobs.job(policy, {setting_of(setting)}).stages();
    CHECK((stages.formed == own.formed) == (stages.effects == own.effects));
    return std::tuple(
        stages.formed == own.formed, stages.planned == own.planned, stages.priced == own.priced);
  };
  CHECK(shared("", "ddp.bucket_cap=1 MiB") == std::tuple(true, true, true));
  CHECK(shared("", "interference.strength=0.5") == std::tuple(true, true, true));
  CHECK(shared("", "ddp.set_to_none=false") == std::tuple(true, true, false));
  CHECK(shared("", "ddp.accumulation_steps=2") == std::tuple(true, false, false));
  CHECK(shared("", "model.checkpointing=true") == std::tuple(true, false, false));
  CHECK(shared("", "policy.fixed.batch_size=4") == std::tuple(false, false, false));
  // Whose share of a global batch depends on the micro-batches.
  Jobs divided(parse_scenario(test::replaced(decoder(), "batch_size = 8", "global_batch = 32"),
                              test::source_root() + "/keys.toml",
                              Overrides{}));
  const RunStages one = divided.job("", {}).stages();
  const Setting two = setting_of("ddp.accumulation_steps=2");
  CHECK(divided.job("", {two}).stages().formed != one.formed);
  CHECK(divided.job("", {two}).stages().formed == divided.job("", {two}).stages().formed);
  // A policy that plans by time forms other batches where prices change.
  const std::string timed = scenario.policies.back().name();
  REQUIRE(scenario.policies.back().step_cost_use() != StepCostUse::Never);
  CHECK(shared(timed, "ddp.set_to_none=false") == std::tuple(true, true, false));
  CHECK(shared(timed, "model.checkpointing=true") == std::tuple(false, false, false));
}

TEST_CASE("every key of the scenario changes the same figures in the engine and the recurrence") {
  std::map<std::string, int> covered;
  for (const KeyChange& change : block_changes()) {
    ++covered[change.key];
    check(kBlocksScenario, change);
  }
  for (const KeyChange& change : shape_changes()) {
    ++covered[change.key];
    check(kBlocksScenario, change);
  }
  const std::string scenario = decoder();
  for (const KeyChange& change : decoder_changes()) {
    ++covered[change.key];
    check(scenario, change);
  }
  for (const KeyTable& table : key_tables()) {
    // Figures of articles describe no step.
    for (const Key& key :
         table.path.empty() || table.path == "published" ? std::vector<Key>() : table.keys) {
      if (!shapes_only_the_plan(table.path, key.name)) {
        CAPTURE(table.path);
        CAPTURE(key.name);
        CHECK_MESSAGE(covered.count(table.path + "." + key.name) == 1,
                      "give this key another value in block_changes() or decoder_changes()");
      }
    }
  }
}

// Runs in lockstep whose draws are played all at once, against the engine that plays each alone.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "sim/predict/draws/lockstep_player.h"
#include "sim/predict/draws/noise.h"
#include "sim/predict/draws/played_draws.h"
#include "sim/predict/metrics.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_simulator.h"
#include "tests/source_root.h"

namespace stepsim {
namespace {

Draw random_draw(const Run& run, std::mt19937& generator) {
  std::uniform_real_distribution<double> off(0.7, 1.4);
  DrawnCosts costs;
  for (std::size_t g = 0; g < run.pricer().groups().size(); ++g) {
    costs.factors.group.push_back(off(generator));
  }
  costs.factors.collective = off(generator);
  costs.factors.host = off(generator);
  costs.factors.new_shapes = off(generator);
  costs.common = off(generator);
  if (run.scenario().interference.active() && generator() % 2 == 0) {
    costs.factors.interference = run.scenario().interference;
    costs.factors.interference->compute *= off(generator);
    costs.factors.interference->transfer *= off(generator);
  }
  return {{}, costs};
}

/// Draws that were played all at once, beside what the engine makes of each.
void compare_with_engine(Run& run, const std::vector<Draw>& draws) {
  const Scenario& scenario = run.scenario();
  const PlayedDraws lanes = play_draws(run, draws, {}, 2, {});
  REQUIRE(lanes.mean_ms.size() == 2);
  StepTimeTally tally;
  for (std::size_t d = 0; d < draws.size(); ++d) {
    for (std::size_t r = 0; r < 2; ++r) {
      NoiseDraws noise(seed_of_draw(scenario.seed, d));
      StepSimulator simulator(run, draws[d][r].factors, draws[d][r].common, &noise, true);
      std::vector<double> steps;
      for (int step = 0; step < scenario.steps; ++step) {
        const StepTimeline timeline = simulator.next();
        if (step >= scenario.warmup_steps) {
          steps.push_back(to_ms(step_time(timeline)));
          if (r == 0) {
            tally.add(timeline);
          }
        }
      }
      CHECK(lanes.mean_ms[r][d] == mean(steps));
      if (r == 0) {
        CHECK(lanes.longest_ms[d] == *std::ranges::max_element(steps));
      }
    }
  }
  PredictionSummary expected;
  PredictionSummary found;
  std::vector<RankMeans> ranks;
  std::vector<RankMeans> found_ranks;
  tally.set_means(ranks, expected);
  lanes.jitter.set_means(found_ranks, found);
  for (const auto member : {&PredictionSummary::data_ms,
                            &PredictionSummary::forward_ms,
                            &PredictionSummary::backward_ms,
                            &PredictionSummary::optimizer_ms,
                            &PredictionSummary::exposed_communication_ms,
                            &PredictionSummary::waiting_for_ranks_ms,
                            &PredictionSummary::communication_ms,
                            &PredictionSummary::overlap_fraction,
                            &PredictionSummary::step_time_std_over_ranks}) {
    CHECK(found.*member == doctest::Approx(expected.*member).epsilon(1e-9));
  }
  REQUIRE(found_ranks.size() == ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    CHECK(found_ranks[r].step_ms == doctest::Approx(ranks[r].step_ms).epsilon(1e-12));
  }
}

/// Keys that a run in lockstep may have, each with some of its values.
const std::vector<std::vector<std::string>> kLockstepKeys = {
    {"ddp.accumulation_steps=2", "ddp.accumulation_steps=3", "ddp.accumulation_steps=4"},
    {"ddp.no_sync=true", "ddp.no_sync=false"},
    {"ddp.bucket_cap=1 MiB", "ddp.bucket_cap=7 MiB", "ddp.bucket_cap=500 MiB"},
    {"ddp.first_bucket=1 MiB", "ddp.first_bucket=30 MiB"},
    {"ddp.static_graph=true", "ddp.find_unused_parameters=true"},
    {"ddp.set_to_none=true", "ddp.set_to_none=false"},
    {"ddp.gradient_as_bucket_view=true", "ddp.gradient_as_bucket_view=false"},
    {"ddp.zero_stage=1", "ddp.zero_stage=2"},
    {"ddp.overlap=false"},
    {"ddp.optimizer_in_backward=true"},
    {"host.step_sync=true", "host.step_sync=false"},
    {"host.launch=1 us", "host.launch=9 us", "host.launch=41 us"},
    {"host.hook=3 us"},
    {"host.enqueue=2 us", "host.enqueue=90 us"},
    {"host.sync=7 us"},
    {"host.copy_bandwidth=1 GB/s"},
    {"cluster.jitter=0.02", "cluster.jitter=0.3"},
    {"cluster.skew=0.4"},
    {"cluster.slow_ranks=[{rank=1, factor=1.237}]"},
    {"cluster.cores=1", "cluster.cores=3"},
    {"parallel.kind=ddp",
     "parallel.kind=fsdp2",
     "parallel.kind=hsdp",
     "parallel.kind=fsdp1",
     "parallel.kind=zero3"},
    {"parallel.reshard_after_forward=false", "parallel.reshard_after_forward=true"},
    {"parallel.param_dtype=bf16", "parallel.reduce_dtype=bf16"},
    {"parallel.forward_prefetch=2", "parallel.backward_prefetch=2"},
    {"data.workers=1", "data.workers=3"},
    {"data.loading={batch=\"30 ms\", per_token=\"1 us\", plan_every=2, plan=\"9 ms\"}",
     "data.loading={batch=\"100 us\"}"},
    {"new_shapes.mechanisms=[{kind=\"attention_plan\", forward=\"5 ms\"}]"},
    {"noise.op_jitter=0.05"},
    {"noise.rank_speed=0.02"},
    {"noise.stall_probability=0.3"},
    {"noise.stall=5 ms"},
    {"noise.loader_stall_probability=0.2"},
    {"noise.loader_stall=80 ms"},
    {"noise.step_quantiles=[0.9, 1, 1.3]"},
    {"host.queue_depth=40", "host.queue_depth=1000"},
};

/// And those of interference, under which DDP's steps still are.
const std::vector<std::vector<std::string>> kInterferenceKeys = {
    {"interference.strength=0.4",
     "interference.compute=0.3",
     "interference.transfer=0.7",
     "interference.strength=1.6"},
    {"interference.multiprocessors=132", "interference.multiprocessors=24"},
    {"interference.memory_share=0.2"},
    {"interference.while_waiting=false"},
};

/// And keys that only the engine plays.
const std::vector<std::vector<std::string>> kEngineKeys = {
    {"ddp.communication_hook=fp16_compress", "ddp.communication_hook={kind=\"powersgd\"}"},
};

/// A timeline without what only recorded spans have.
StepTimeline without_spans(StepTimeline timeline) {
  timeline.spans.clear();
  timeline.waits.clear();
  for (RankTimeline& rank : timeline.ranks) {
    rank.enqueued_at.clear();
  }
  return timeline;
}

/// Returns one of the texts.
std::string one_of(const std::vector<std::string>& texts, std::mt19937& generator) {
  return texts[generator() % texts.size()];
}

}  // namespace

TEST_CASE("lockstep: all draws at once are what the engine plays of each, to the nanosecond") {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"ddp.accumulation_steps=3", "cluster.jitter=0.1"},
      {"ddp.find_unused_parameters=true", "host.hook=3 us", "host.launch=13 us"},
      {"ddp.zero_stage=2", "cluster.slow_ranks=[{rank=1, factor=1.237}]"},
      {"host.copy_bandwidth=1 GB/s", "cluster.jitter=0.1", "ddp.accumulation_steps=2"},
      {"cluster.cores=1", "cluster.jitter=0.2"},
      {"data.workers=2",
       "data.loading={batch=\"30 ms\", per_token=\"1 us\"}",
       "cluster.jitter=0.1"},
      {"interference.strength=0.4", "cluster.jitter=0.1"},
      {"interference.compute=0.3", "host.launch=13 us", "ddp.accumulation_steps=2"},
      {"interference.transfer=2.5", "host.launch=41 us", "cluster.jitter=0.3"},
      {"interference.multiprocessors=24", "interference.while_waiting=false"},
      {"noise.op_jitter=0.1", "host.queue_depth=100"},
      {"noise.op_jitter=0.1", "interference.strength=0.4", "noise.rank_speed=0.1"},
      {"noise.stall_probability=0.4", "noise.stall=9 ms", "interference.compute=0.3"},
      {"noise.loader_stall_probability=0.4", "noise.loader_stall=90 ms", "data.workers=1"},
      {"host.queue_depth=7", "interference.multiprocessors=24"},
      {"interference.transfer=9",
       "interference.compute=0.3",
       "host.copy_bandwidth=200 MB/s",
       "ddp.accumulation_steps=3"},
      {"interference.transfer=9", "host.step_sync=true", "host.sync=300 us"},
      {"interference.transfer=9",
       "interference.compute=0.3",
       "ddp.accumulation_steps=2",
       "new_shapes.mechanisms=[{kind=\"other\", forward=\"3 ms\", backward=\"2 ms\"}]"},
      {"ddp.overlap=false", "host.step_sync=true", "host.launch=20 us"}};
  std::mt19937 generator(7);
  int played_lanes = 0;
  for (const char* name :
       {"sst2_distilbert", "planned_shapes", "lm2b_2gpu", "shard_1b", "ddp_or_shard"}) {
    for (const std::vector<std::string>& overrides : cases) {
      CAPTURE(name);
      CAPTURE(overrides.empty() ? "as shipped" : overrides.front());
      std::vector<std::string> all = overrides;
      all.emplace_back("scenario.steps=4");
      all.emplace_back("scenario.warmup_steps=1");
      std::optional<Scenario> scenario;
      try {
        scenario = read_scenario(test::source_root() + "/scenarios/" + name + ".toml", all);
      } catch (const InputError&) {
        continue;  // A key of DDP's in a job that is sharded.
      }
      Run run(*scenario, scenario->policies.front(), scenario_profile(*scenario));
      if (!run.reduced().draws_in_lockstep()) {
        continue;
      }
      ++played_lanes;
      std::vector<Draw> draws;
      const int count = name == std::string("planned_shapes") && played_lanes % 3 == 1 ? 35 : 4;
      for (int d = 0; d < count; ++d) {  // 35 are more than one part.
        draws.push_back(random_draw(run, generator));
      }
      compare_with_engine(run, draws);
    }
  }
  CHECK(played_lanes >= 30);
}

TEST_CASE("lockstep: what holds up a pass is not shared by layers that are alike") {
  // Equal blocks: those behind the first of a pass are like it but for what new shapes cost.
  const std::vector<std::string> overrides = {
      "parallel.kind=fsdp2",
      "scenario.steps=6",
      "data.lengths={log_normal={mu=4, sigma=0.5, min=8, max=512}}",
      "new_shapes.mechanisms=[{kind=\"other\", forward=\"3 ms\", backward=\"2 ms\"}]"};
  const Scenario scenario =
      read_scenario(test::source_root() + "/scenarios/engines_step.toml", overrides);
  Run run(scenario, scenario.policies.front(), scenario_profile(scenario));
  REQUIRE(run.reduced().in_lockstep());
  REQUIRE_FALSE(run.loads().shape_stalls.empty());
  std::mt19937 generator(3);
  compare_with_engine(run, {random_draw(run, generator), random_draw(run, generator)});
  StepSimulator lockstep(run);
  StepSimulator engine(run, {}, 1, nullptr, true);
  for (int step = 0; step < scenario.steps; ++step) {
    CHECK(step_time(lockstep.next()) == step_time(engine.next()));
  }
}

TEST_CASE("lockstep: draws of random scenarios are the engine's to the nanosecond") {
  const char* wanted = std::getenv("STEPSIM_LANE_SCENARIOS");
  const int count = wanted != nullptr ? std::stoi(wanted) : 60;
  std::mt19937 generator(wanted != nullptr ? 11 : 12);
  const auto one_of = [&](const auto& values) { return values[generator() % values.size()]; };
  const std::vector<std::string> names = {"sst2_distilbert",
                                          "planned_shapes",
                                          "lm2b_2gpu",
                                          "shard_1b",
                                          "ddp_or_shard",
                                          "token_skew",
                                          "engines_step",
                                          "busy_cluster",
                                          "accumulation"};
  std::map<std::string, Profile> profiles;
  int compared = 0;
  int slowed = 0;
  int in_lanes = 0;
  for (int drawn = 0; compared < count && drawn < 100 * count; ++drawn) {
    const std::string name = one_of(names);
    std::vector<std::string> overrides = {"scenario.steps=4", "scenario.warmup_steps=1"};
    overrides.push_back(fmt::format("scenario.seed={}", generator() % 1000));
    if (name == "shard_1b" || name == "ddp_or_shard") {
      overrides.push_back(
          one_of(std::vector<std::string>{"cluster.placement=2x2", "cluster.placement=4"}));
    }
    for (const std::vector<std::string>& values : kLockstepKeys) {
      if (generator() % 5 == 0) {
        overrides.push_back(one_of(values));
      }
    }
    const bool interferes = generator() % 3 == 0;
    for (const std::vector<std::string>& values : kInterferenceKeys) {
      if (interferes && generator() % 2 == 0) {
        overrides.push_back(one_of(values));
      }
    }
    const std::string about = fmt::format("{}: {}", name, fmt::join(overrides, "; "));
    CAPTURE(about);
    std::optional<Run> run;
    try {
      const Scenario scenario =
          read_scenario(test::source_root() + "/scenarios/" + name + ".toml", overrides);
      if (scenario.ranks > 8) {
        continue;
      }
      const auto profile = profiles.try_emplace(name, scenario_profile(scenario)).first;
      run.emplace(scenario, one_of(scenario.policies), profile->second);
      StepSimulator simulator(*run);
      (void)simulator.next();
    } catch (const InputError&) {
      continue;  // Keys that exclude one another, or collectives without a price.
    }
    if (!run->reduced().draws_in_lockstep()) {
      continue;
    }
    ++compared;
    slowed += run->scenario().interference.active() ? 1 : 0;
    const std::vector<Draw> draws = {random_draw(*run, generator), random_draw(*run, generator)};
    in_lanes += LockstepPlayer(*run, 0, draws).play([](int) {}) ? 1 : 0;
    compare_with_engine(*run, draws);
  }
  CHECK(compared == count);
  CHECK(6 * slowed > count);
  CHECK(20 * in_lanes > 19 * count);  // Where they are not, the engine plays both.
}

TEST_CASE("engine: steps of a template are those of a program of their own with events") {
  const char* wanted = std::getenv("STEPSIM_LANE_SCENARIOS");
  const int count = wanted != nullptr ? std::stoi(wanted) : 60;
  std::mt19937 generator(wanted != nullptr ? 21 : 22);
  const std::vector<std::string> names = {"sst2_distilbert",
                                          "planned_shapes",
                                          "lm2b_2gpu",
                                          "shard_1b",
                                          "busy_cluster",
                                          "token_skew",
                                          "engines_step",
                                          "accumulation"};
  int compared = 0;
  int slowed = 0;
  for (int drawn = 0; compared < count && drawn < 100 * count; ++drawn) {
    const std::string name = one_of(names, generator);
    std::vector<std::string> overrides = {"scenario.steps=4", "scenario.warmup_steps=1"};
    overrides.push_back(fmt::format("scenario.seed={}", generator() % 1000));
    for (const auto* keys : {&kLockstepKeys, &kInterferenceKeys, &kEngineKeys}) {
      for (const std::vector<std::string>& values : *keys) {
        if (generator() % (keys == &kLockstepKeys ? 6 : 3) == 0) {
          overrides.push_back(one_of(values, generator));
        }
      }
    }
    const std::string about = fmt::format("{}: {}", name, fmt::join(overrides, "; "));
    CAPTURE(about);
    std::optional<Run> run;
    const auto play = [&](const DrawnCosts& costs, bool record_spans) {
      NoiseDraws noise(seed_of_draw(run->scenario().seed, 0));
      StepSimulator simulator(*run, costs.factors, costs.common, &noise, true);
      std::vector<StepTimeline> steps;
      for (int step = 0; step < run->scenario().steps; ++step) {
        steps.push_back(without_spans(simulator.next(record_spans)));
      }
      return steps;
    };
    try {
      const Scenario scenario =
          read_scenario(test::source_root() + "/scenarios/" + name + ".toml", overrides);
      run.emplace(scenario, scenario.policies.front(), scenario_profile(scenario));
      (void)play({}, true);
    } catch (const InputError&) {
      continue;  // Keys that exclude one another, or collectives without a price.
    }
    if (!run->reduced().has_template()) {
      continue;
    }
    ++compared;
    slowed += run->reduced().engine_rules({}).interference.active() ? 1 : 0;
    for (int d = 0; d < 2; ++d) {  // The second one's template is the first one's with other times.
      const DrawnCosts costs = random_draw(*run, generator).back();
      CHECK(play(costs, false) == play(costs, true));
    }
  }
  CHECK(compared == count);
  CHECK(3 * slowed > count);
}

}  // namespace stepsim

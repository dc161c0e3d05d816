// Runs that are not plain, and are played in lockstep all the same.
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/predict/draws/drawn_factors.h"
#include "sim/predict/draws/noise.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_simulator.h"
#include "tests/source_root.h"

namespace stepsim {
namespace {

struct PlayedRun {
  std::vector<StepTimeline> timelines;
  bool in_lockstep = false;
};

/// Plays a run, with jitter where `noisy`, and its third step with all spans where asked.
PlayedRun played_run(Run& run, bool engine, bool noisy, bool record_spans = false) {
  CostFactors factors;
  factors.host = noisy ? 1.1 : 1;
  factors.collective = noisy ? 0.9 : 1;
  NoiseDraws noise(seed_of_draw(run.scenario().seed, 3));
  StepSimulator simulator(
      run, std::move(factors), noisy ? 1.07 : 1, noisy ? &noise : nullptr, engine);
  PlayedRun played;
  played.in_lockstep = run.reduced().in_lockstep();
  for (int step = 0; step < run.scenario().steps; ++step) {
    StepTimeline& timeline =
        played.timelines.emplace_back(simulator.next(record_spans && step == 2));
    timeline.spans.clear();
    timeline.waits.clear();
    for (RankTimeline& rank : timeline.ranks) {
      rank.enqueued_at.clear();
    }
  }
  return played;
}

}  // namespace

TEST_CASE("lockstep: DDP's steps are the engine's to the nanosecond, the rebuild included") {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"ddp.accumulation_steps=3", "ddp.no_sync=true"},
      {"ddp.accumulation_steps=2", "ddp.no_sync=false", "host.step_sync=true"},
      {"ddp.static_graph=true", "ddp.set_to_none=false"},
      {"ddp.find_unused_parameters=true", "host.hook=3 us", "host.enqueue=2 us"},
      {"ddp.zero_stage=1", "host.launch=13 us"},
      {"ddp.zero_stage=2", "cluster.slow_ranks=[{rank=1, factor=1.237}]"},
      {"ddp.optimizer_in_backward=true"},
      {"host.copy_bandwidth=1 GB/s", "cluster.jitter=0.1", "ddp.accumulation_steps=2"},
      {"cluster.communicator=gloo", "cluster.jitter=0.1"},
      {"cluster.cores=1", "ddp.accumulation_steps=2"},
      {"ddp.overlap=false", "host.step_sync=true"},
      {"data.workers=2",
       "data.loading={batch=\"30 ms\", per_token=\"1 us\", plan_every=3, plan=\"20 ms\"}"},
      {"data.loading={batch=\"1 ms\"}", "ddp.accumulation_steps=2"}};
  int in_lockstep = 0;
  for (const char* name : {"sst2_distilbert", "token_skew", "planned_shapes", "lm2b_2gpu"}) {
    for (const std::vector<std::string>& overrides : cases) {
      CAPTURE(name);
      CAPTURE(overrides.empty() ? "as shipped" : overrides.front());
      std::vector<std::string> all = overrides;
      all.emplace_back("scenario.steps=5");
      all.emplace_back("scenario.warmup_steps=1");
      const Scenario scenario =
          read_scenario(test::source_root() + "/scenarios/" + name + ".toml", all);
      Run run(scenario, scenario.policies.front(), scenario_profile(scenario));
      if (!run.reduced().in_lockstep()) {
        continue;
      }
      ++in_lockstep;
      for (const bool noisy : {false, true}) {
        CAPTURE(noisy);
        const std::vector<StepTimeline> expected = played_run(run, true, noisy).timelines;
        CHECK(played_run(run, false, noisy).timelines == expected);
        CHECK(played_run(run, false, noisy, true).timelines == expected);
      }
    }
  }
  CHECK(in_lockstep >= 25);
}

TEST_CASE("engine: a program that is given the work of each step is the one that is built of it") {
  const std::vector<std::vector<std::string>> cases = {
      {"interference.strength=0.2", "cluster.jitter=0.1"},
      {"noise.op_jitter=0.1", "noise.stall_probability=0.3", "noise.stall=9 ms"},
      {"noise.op_jitter=0.2", "ddp.accumulation_steps=3", "host.launch=7 us"},
      {"host.queue_depth=10", "host.step_sync=true", "host.copy_bandwidth=1 GB/s"},
      {"data.workers=2",
       "data.loading={batch=\"30 ms\", per_token=\"1 us\"}",
       "noise.loader_stall_probability=0.2",
       "noise.loader_stall=5 ms"}};
  int compared = 0;
  for (const char* name : {"planned_shapes", "lm2b_2gpu", "shard_1b", "busy_cluster"}) {
    for (const std::vector<std::string>& overrides : cases) {
      CAPTURE(name);
      CAPTURE(overrides.front());
      std::vector<std::string> all = overrides;
      all.emplace_back("scenario.steps=5");
      all.emplace_back("scenario.warmup_steps=2");
      std::optional<Scenario> scenario;
      try {
        scenario = read_scenario(test::source_root() + "/scenarios/" + name + ".toml", all);
      } catch (const InputError&) {
        continue;  // A key of DDP's in a job that is sharded.
      }
      Run run(*scenario, scenario->policies.front(), scenario_profile(*scenario));
      if (!run.reduced().has_template()) {
        continue;
      }
      ++compared;
      NoiseDraws noise(1);
      NoiseDraws same_noise(1);
      StepSimulator given(run, {}, 1.1, &noise, true);
      StepSimulator built(run, {}, 1.1, &same_noise, true);
      for (int step = 0; step < 5; ++step) {
        const StepTimeline timeline = given.next();
        const StepTimeline expected = built.next(true);
        CHECK(timeline.clocks == expected.clocks);
        CHECK(timeline.reduce_start == expected.reduce_start);
        CHECK(timeline.reduce_end == expected.reduce_end);
      }
    }
  }
  CHECK(compared >= 12);
}

TEST_CASE("lockstep: runs whose programs differ from step to step are left to the engine") {
  const auto in_lockstep = [](const std::vector<std::string>& overrides) {
    const Scenario scenario =
        read_scenario(test::source_root() + "/scenarios/planned_shapes.toml", overrides);
    Run run(scenario, scenario.policies.front(), scenario_profile(scenario));
    return run.reduced().in_lockstep();
  };
  CHECK(in_lockstep({}));
  for (const char* other : {"ddp.communication_hook=fp16",
                            "interference.strength=0.1",
                            "host.queue_depth=10",
                            "noise.op_jitter=0.1",
                            "model.sparse_embeddings=true"}) {
    CAPTURE(other);
    CHECK_FALSE(in_lockstep({other}));
  }
}

}  // namespace stepsim

// Runs that are not plain, and are played in lockstep all the same.
#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/predict/draws/drawn_factors.h"
#include "sim/predict/draws/noise.h"
#include "sim/predict/draws/played_draws.h"
#include "sim/predict/metrics.h"
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
      {"ddp.overlap=false", "host.step_sync=true", "host.launch=20 us"}};
  std::mt19937 generator(7);
  std::uniform_real_distribution<double> off(0.7, 1.4);
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
      if (!run.reduced().in_lockstep()) {
        continue;
      }
      ++played_lanes;
      std::vector<Draw> draws;
      const int count = name == std::string("planned_shapes") && played_lanes % 3 == 1 ? 35 : 4;
      for (int d = 0; d < count; ++d) {  // 35 are more than one part.
        DrawnCosts costs;
        for (std::size_t g = 0; g < run.pricer().groups().size(); ++g) {
          costs.factors.group.push_back(off(generator));
        }
        costs.factors.collective = off(generator);
        costs.factors.host = off(generator);
        costs.factors.new_shapes = off(generator);
        costs.common = off(generator);
        draws.push_back({{}, costs});
      }
      const PlayedDraws lanes = play_draws(run, draws, {}, 2, {});
      REQUIRE(lanes.mean_ms.size() == 2);
      StepTimeTally tally;
      for (std::size_t d = 0; d < draws.size(); ++d) {
        for (std::size_t r = 0; r < 2; ++r) {
          NoiseDraws noise(seed_of_draw(scenario->seed, d));
          StepSimulator simulator(run, draws[d][r].factors, draws[d][r].common, &noise, true);
          std::vector<double> steps;
          for (int step = 0; step < scenario->steps; ++step) {
            const StepTimeline timeline = simulator.next();
            if (step >= scenario->warmup_steps) {
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
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        CHECK(found_ranks[r].step_ms == doctest::Approx(ranks[r].step_ms).epsilon(1e-12));
      }
    }
  }
  CHECK(played_lanes >= 20);
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

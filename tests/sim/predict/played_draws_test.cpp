// Draws that are played all at once, against the recurrence that plays one step after another.
#include "sim/predict/draws/played_draws.h"

#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_simulator.h"
#include "tests/source_root.h"

using namespace stepsim;

namespace {

/// Costs that are off by up to a third, group by group.
std::vector<int> all_steps(const Run& run) {
  std::vector<int> steps(static_cast<std::size_t>(run.scenario().steps));
  std::iota(steps.begin(), steps.end(), 0);
  return steps;
}

DrawnCosts random_costs(Run& run, std::mt19937& generator) {
  std::uniform_real_distribution<double> off(0.7, 1.4);
  DrawnCosts costs;
  for (std::size_t g = 0; g < run.pricer().groups().size(); ++g) {
    costs.factors.group.push_back(off(generator));
  }
  costs.factors.collective = off(generator);
  costs.factors.host = off(generator);
  costs.factors.new_shapes = off(generator);
  costs.common = off(generator);
  return costs;
}

/// The mean steady step by the recurrence, in milliseconds.
double mean_step(Run& run, const DrawnCosts& costs) {
  StepSimulator simulator(run, costs.factors, costs.common);
  std::vector<double> steps;
  for (int step = 0; step < run.scenario().steps; ++step) {
    const double ms = to_ms(step_time(simulator.next()));
    if (step >= run.scenario().warmup_steps) {
      steps.push_back(ms);
    }
  }
  return mean(steps);
}

struct DrawCase {
  const char* scenario;
  std::vector<std::string> overrides;
};

const std::vector<DrawCase> kDrawCases = {
    {"token_skew", {}},
    {"token_skew", {"ddp.set_to_none=true", "ddp.gradient_as_bucket_view=true"}},
    {"token_skew_2ranks", {"cluster.skew=0.3"}},
    {"bucket_valley", {}},
    {"bucket_valley", {"ddp.bucket_cap=1 MiB"}},
    {"engines_step", {}},
    {"engines_step", {"scenario.warmup_steps=3", "ddp.gradient_as_bucket_view=false"}},
    {"batching_libraries", {"scenario.steps=9"}},
    {"batching_libraries", {"scenario.steps=9", "host.launch=40 us"}},
    {"batching_libraries", {"scenario.steps=9", "host.launch=2 us", "cluster.skew=1"}},
    {"planned_shapes", {"scenario.steps=12"}},
    {"gpt2_medium_1gpu", {}},
};

}  // namespace

TEST_CASE("draws: folded steps take as long as the recurrence says, under any factors") {
  std::mt19937 generator(5);
  int played = 0;
  for (const DrawCase& draw_case : kDrawCases) {
    CAPTURE(draw_case.scenario);
    const Scenario scenario = read_scenario(
        test::source_root() + "/scenarios/" + draw_case.scenario + ".toml", draw_case.overrides);
    Profile profile = scenario_profile(scenario);
    profile.noise = {};  // No jitter: the draws differ by their factors alone.
    for (auto& cost : profile.collectives) {
      cost.spread.clear();
    }
    for (const BatchingPolicy& policy : scenario.policies) {
      Run run(scenario, policy, profile);
      if (!run.reduced().plain()) {
        continue;
      }
      ++played;
      CAPTURE(policy.name());
      std::vector<Draw> draws;
      for (int d = 0; d < 23; ++d) {  // Two parts of ten, and one that is not full.
        draws.push_back({{}, random_costs(run, generator)});
      }
      const PlayedDraws result = play_draws(run, draws, all_steps(run), 1, {});
      const double exact = mean_step(run, {});
      const double rounding =
          1e-6 * (10 + 2 * static_cast<double>(run.pricer().ops_per_micro_batch()));
      for (std::size_t d = 0; d < draws.size(); ++d) {
        CHECK(std::abs(result.mean_ms[0][d] - exact) < rounding);
        CHECK(std::abs(result.mean_ms[1][d] - mean_step(run, draws[d][1])) < rounding);
      }
      CHECK(result.jitter.step_ms().size() ==
            draws.size() * static_cast<std::size_t>(scenario.steps - scenario.warmup_steps));
      // The parts of the mean are those of the run without noise.
      StepTimeTally tally;
      StepSimulator simulator(run);
      for (int step = 0; step < scenario.steps; ++step) {
        const StepTimeline timeline = simulator.next();
        if (step >= scenario.warmup_steps) {
          tally.add(timeline);
        }
      }
      PredictionSummary expected;
      PredictionSummary found;
      std::vector<RankMeans> ranks;
      std::vector<RankMeans> found_ranks;
      tally.set_means(ranks, expected);
      result.jitter.set_means(found_ranks, found);
      for (const auto member : {&PredictionSummary::data_ms,
                                &PredictionSummary::forward_ms,
                                &PredictionSummary::backward_ms,
                                &PredictionSummary::optimizer_ms,
                                &PredictionSummary::exposed_communication_ms,
                                &PredictionSummary::waiting_for_ranks_ms,
                                &PredictionSummary::communication_ms,
                                &PredictionSummary::step_time_std_over_ranks}) {
        CHECK(std::abs(found.*member - expected.*member) < rounding);
      }
      CHECK(std::abs(found.overlap_fraction - expected.overlap_fraction) < 1e-3);
      REQUIRE(found_ranks.size() == ranks.size());
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        CHECK(std::abs(found_ranks[r].step_ms - ranks[r].step_ms) < rounding);
      }
    }
  }
  CHECK(played > 30);
}

TEST_CASE("draws: the result does not depend on the number of threads") {
  const Scenario scenario =
      read_scenario(test::source_root() + "/scenarios/batching_libraries.toml",
                    std::vector<std::string>{"cluster.jitter=0.05"});
  const Profile profile = scenario_profile(scenario);
  Run run(scenario, scenario.policies.front(), profile);
  REQUIRE(run.reduced().plain());
  std::mt19937 generator(6);
  std::vector<Draw> draws;
  for (int d = 0; d < 45; ++d) {
    draws.push_back({{}, random_costs(run, generator)});
  }
  const PlayedDraws one = play_draws(run, draws, all_steps(run), 1, {});
  const PlayedDraws three = play_draws(run, draws, all_steps(run), 3, {});
  CHECK(one.mean_ms == three.mean_ms);
  CHECK(one.longest_ms == three.longest_ms);
  CHECK(one.jitter.step_ms() == three.jitter.step_ms());
  CHECK(one.mean_ms[0][0] != one.mean_ms[0][1]);  // The draws have jitter of their own.
}

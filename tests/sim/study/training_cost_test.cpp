#include "sim/study/training/training_cost.h"

#include <array>

#include <doctest/doctest.h>

#include "tests/approx.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

Prediction cluster_prediction(double step_ms, double samples) {
  Prediction prediction;
  prediction.summary.step_time_ms.mean = step_ms;
  prediction.summary.step_time_ms.low90 = step_ms / 2;
  prediction.summary.step_time_ms.high90 = step_ms * 2;
  prediction.summary.samples_per_step = samples;
  prediction.summary.useful_tokens_per_step = 10 * samples;
  return prediction;
}

TEST_CASE("what training costs: hours, GPU-hours, money, efficiency and the frontier") {
  const std::array<Prediction, 4> runs = {cluster_prediction(100, 8),
                                          cluster_prediction(100, 16),
                                          cluster_prediction(250, 32),
                                          cluster_prediction(160, 64)};
  const std::array<ClusterPoint, 4> points = {
      {{&runs[0], 1}, {&runs[1], 2}, {&runs[2], 4}, {&runs[3], 8}}};
  TrainingGoal goal;
  goal.samples = 720'000;
  goal.price = 2;
  const auto costs = training_costs(points, goal);
  CHECK(costs[0].samples_per_s == 80);
  CHECK(costs[0].samples_per_s_low90 == 40);
  CHECK(costs[0].samples_per_s_high90 == 160);
  CHECK(*costs[0].hours == 2.5);
  CHECK(*costs[1].hours == 1.25);
  CHECK(*costs[1].rank_hours == 2.5);
  CHECK(*costs[1].money == 5);
  CHECK(costs[1].efficiency == 1);
  CHECK(costs[2].efficiency == 0.4);
  CHECK(costs[3].efficiency == Approx(0.625));
  // The first does as much per rank as the second, and less; the third less than the second.
  CHECK_FALSE(costs[0].efficient);
  CHECK(costs[1].efficient);
  CHECK_FALSE(costs[2].efficient);
  CHECK(costs[3].efficient);
  CHECK(*largest_worth(costs, goal) == 1);
  goal.efficiency = 0.6;
  CHECK(*largest_worth(costs, goal) == 3);
}

TEST_CASE("what training costs: samples are the epoch's, whatever the steps happen to hold") {
  std::array<Prediction, 2> runs = {cluster_prediction(100, 8), cluster_prediction(100, 8)};
  for (Prediction& run : runs) {
    run.summary.tokens_per_sample = 8;  // The steps hold samples of 10 tokens.
  }
  runs[1].summary.samples_per_step = 16;  // The same tokens in shorter samples.
  const std::array<ClusterPoint, 2> points = {{{&runs[0], 1}, {&runs[1], 2}}};
  TrainingGoal goal;
  goal.samples = 720'000;
  const auto costs = training_costs(points, goal);
  CHECK(costs[0].samples_per_s == 100);
  CHECK(costs[1].samples_per_s == 100);
  CHECK(*costs[0].hours == 2);
  CHECK(*costs[1].hours == 2);
  CHECK(costs[1].efficiency == 0.5);
  CHECK_FALSE(costs[1].efficient);
}

TEST_CASE("what training costs: tokens as the goal, and clusters without memory") {
  std::array<Prediction, 2> runs = {cluster_prediction(100, 8), cluster_prediction(100, 16)};
  runs[1].out_of_memory.emplace();
  const std::array<ClusterPoint, 2> points = {{{&runs[0], 1}, {&runs[1], 2}}};
  TrainingGoal goal;
  goal.tokens = 7.2e6;
  const auto costs = training_costs(points, goal);
  CHECK(*costs[0].hours == 2.5);
  CHECK_FALSE(costs[0].money);
  CHECK(costs[1].samples_per_s == 0);
  CHECK_FALSE(costs[1].hours);
  CHECK_FALSE(costs[1].efficient);
  CHECK(*largest_worth(costs, goal) == 0);
}

}  // namespace
}  // namespace stepsim

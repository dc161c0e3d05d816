#include "sim/predict/metrics.h"

#include <doctest/doctest.h>

#include "tests/approx.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

RankStepResult row(int step, int rank, std::int64_t useful, std::int64_t padded) {
  RankStepResult result;
  result.step = step;
  result.rank = rank;
  result.samples = 2;
  result.useful_tokens = useful;
  result.padded_tokens = padded;
  return result;
}

}  // namespace

TEST_CASE("a quantile interpolates between order statistics") {
  CHECK(quantile({4, 1, 3, 2}, 0.5) == Approx(2.5));
  CHECK(quantile({4, 1, 3, 2}, 0) == 1);
  CHECK(quantile({4, 1, 3, 2}, 1) == 4);
  CHECK(quantile({}, 0.5) == 0);
}

TEST_CASE("a quantile of steps does not depend on how often they are repeated") {
  const std::vector<double> once = {4, 1, 3, 2};
  for (const double q : {0.0, 0.1, 0.25, 0.5, 0.6, 0.75, 0.95, 0.99, 1.0}) {
    std::vector<double> steps = once;
    for (int repeats = 2; repeats < 30; ++repeats) {
      steps.insert(steps.end(), once.begin(), once.end());
      CHECK(step_quantile(steps, q) == step_quantile(once, q));
    }
  }
  CHECK(step_quantile(once, 0) == 1);
  CHECK(step_quantile(once, 0.25) == 1.75);
  CHECK(step_quantile(once, 0.5) == 2.5);
  CHECK(step_quantile(once, 0.6) == 3);
  CHECK(step_quantile(once, 0.95) == 4);
  CHECK(step_quantile(once, 1) == 4);
  CHECK(step_quantile({7}, 0.95) == 7);
  CHECK(step_quantile({}, 0.5) == 0);
}

TEST_CASE("the standard deviation is over the population") {
  const std::vector<double> values = {1, 3};
  CHECK(population_std(values) == Approx(1));
}

TEST_CASE("a step lasts from the last rank's start to the last rank's end, so that steps add up") {
  // Rank 0 ends step 0 at 10 and rank 1 at 12; step 1 ends at 25 and 22: 12 + 13 = 25.
  GlobalSteps steps;
  steps.add(0, 0, 0, 10);
  steps.add(0, 0, 0, 12);
  steps.add(0, 1, 10, 15);
  steps.add(0, 1, 12, 10);
  CHECK(steps.by_repeat() == std::map<int, std::map<int, double>>{{0, {{0, 12}, {1, 13}}}});
}

TEST_CASE("padding is a ratio of means and throughput is over the mean step time") {
  // Step 0 is warm-up. Steady steps: useful 100+60, 80+60; padded 100+100, 100+100.
  const std::vector<RankStepResult> rows = {row(0, 0, 1, 999),
                                            row(0, 1, 1, 999),
                                            row(1, 0, 100, 100),
                                            row(1, 1, 60, 100),
                                            row(2, 0, 80, 100),
                                            row(2, 1, 60, 100)};
  PredictionSummary summary;
  std::vector<RankMeans> ranks;
  WorkTally work(2);
  for (std::size_t step = 0; step < 3; ++step) {
    work.add(std::span(rows).subspan(step * 2, 2), step > 0);
  }
  work.set_means(ranks, summary);
  summary.step_time_ms.mean = 12;
  CHECK(summary.useful_tokens_per_step == Approx(150));
  CHECK(summary.padded_tokens_per_step == Approx(200));
  CHECK(summary.padding_ratio() == Approx(0.25));
  CHECK(summary.rank_token_spread == Approx(30));  // (40 + 20) / 2
  CHECK(summary.useful_tokens_per_s() == Approx(12500));
  CHECK(summary.padded_tokens_per_s() == Approx(200 / 0.012));
  CHECK(summary.samples_per_s() == Approx(4 / 0.012));
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[0].useful_tokens == Approx(90));
  CHECK(ranks[1].padded_tokens == Approx(100));
}

TEST_CASE("the means of a tally add up to the step") {
  // Forwards take 2 ms and optimizers 1. The first step, 0 to 10: rank 0 ends its backward at 7 and
  // waits 2, rank 1 at 9 and does not wait. The second, 10 to 24: rank 0 ends its backward at 21
  // and waits 2, rank 1 at 16 and waits 7; the bucket is reduced from 19 to 23, half of it hidden.
  const auto ms = [](int value) { return SimTime(std::chrono::milliseconds(value)); };
  const auto rank = [&](int start, int backward_end, int end) {
    RankTimeline line;
    line.start = line.data_end = ms(start);
    line.forward_end = ms(start + 2);
    line.backward_end = line.compute_end = ms(backward_end);
    line.exposed = ms(end - 1) - ms(backward_end);
    line.optimizer = std::chrono::milliseconds(1);
    line.end = ms(end);
    return line;
  };
  StepTimeTally tally;
  StepTimeline first;
  first.ranks = {rank(0, 7, 10), rank(0, 9, 10)};
  first.reduce_start = first.reduce_end = {ms(9)};
  tally.add(first);
  StepTimeline second;
  second.ranks = {rank(10, 21, 24), rank(10, 16, 24)};
  second.reduce_start = {ms(19)};
  second.reduce_end = {ms(23)};
  tally.add(second);
  CHECK(tally.step_ms() == std::vector<double>{10, 14});
  PredictionSummary summary;
  std::vector<RankMeans> ranks;
  tally.set_means(ranks, summary);
  CHECK(summary.forward_ms == Approx(2));
  CHECK(summary.backward_ms == Approx((5 + 7 + 9 + 4) / 4.0));
  CHECK(summary.exposed_communication_ms == Approx((2 + 0 + 2 + 7) / 4.0));
  CHECK(summary.optimizer_ms == Approx(1));
  CHECK(summary.communication_ms == Approx(2));
  CHECK(summary.overlap_fraction == Approx(0.5));
  CHECK(summary.step_time_std_over_ranks == 0);
  for (const RankMeans& means : ranks) {
    CHECK(means.step_ms == Approx(12));
    CHECK(means.data_ms + means.forward_ms + means.backward_ms + means.exposed_ms +
              means.optimizer_ms ==
          Approx(means.step_ms));
  }
  CHECK(ranks[1].exposed_ms == Approx(3.5));
}

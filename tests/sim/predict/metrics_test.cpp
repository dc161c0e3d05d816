#include "sim/predict/metrics.h"

#include <doctest/doctest.h>

using namespace stepsim;

namespace {

RankStepResult row(int step, int rank, std::int64_t useful, std::int64_t padded, double ms) {
  RankStepResult result;
  result.step = step;
  result.rank = rank;
  result.samples = 2;
  result.useful_tokens = useful;
  result.padded_tokens = padded;
  result.step_ms = ms;
  return result;
}

}  // namespace

TEST_CASE("a quantile interpolates between order statistics") {
  CHECK(quantile({4, 1, 3, 2}, 0.5) == doctest::Approx(2.5));
  CHECK(quantile({4, 1, 3, 2}, 0) == 1);
  CHECK(quantile({4, 1, 3, 2}, 1) == 4);
  CHECK(quantile({}, 0.5) == 0);
}

TEST_CASE("the standard deviation is over the population") {
  const std::vector<double> values = {1, 3};
  CHECK(population_std(values) == doctest::Approx(1));
}

TEST_CASE("a step lasts from the last rank's start to the last rank's end, so that steps add up") {
  // Rank 0 ends step 0 at 10 and rank 1 at 12; step 1 ends at 25 and 22: 12 + 13 = 25.
  GlobalSteps steps;
  steps.add(0, 0, 0, 10);
  steps.add(0, 0, 0, 12);
  steps.add(0, 1, 10, 15);
  steps.add(0, 1, 12, 10);
  CHECK(steps.all_ms() == std::vector<double>{12, 13});
}

TEST_CASE("padding is a ratio of means and throughput is over the slowest rank's mean") {
  // Step 0 is warm-up. Steady steps: useful 100+60, 80+60; padded 100+100, 100+100.
  const std::vector<RankStepResult> rows = {row(0, 0, 1, 999, 900),
                                            row(0, 1, 1, 999, 900),
                                            row(1, 0, 100, 100, 10),
                                            row(1, 1, 60, 100, 8),
                                            row(2, 0, 80, 100, 10),
                                            row(2, 1, 60, 100, 16)};
  PredictionSummary summary;
  summarise(rows, 2, 1, summary);
  CHECK(summary.useful_tokens_per_step == doctest::Approx(150));
  CHECK(summary.padded_tokens_per_step == doctest::Approx(200));
  CHECK(summary.padding_ratio == doctest::Approx(0.25));
  CHECK(summary.rank_token_spread == doctest::Approx(30));     // (40 + 20) / 2
  CHECK(summary.slowest_rank_step_ms == doctest::Approx(12));  // rank 1: (8 + 16) / 2
  CHECK(summary.useful_tokens_per_s == doctest::Approx(12500));
  CHECK(summary.samples_per_s == doctest::Approx(4 / 0.012));
  CHECK(summary.step_time_std_over_ranks == doctest::Approx(2));  // (1 + 3) / 2
}

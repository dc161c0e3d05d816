// Published figures of the dynamic allocation: DistilBERT on SST-2, 4 ranks, a global batch of 48,
// 64 samples looked at, 800 steps. The order of the samples was not published: 40 random ones.
#include <cmath>

#include <doctest/doctest.h>

#include "sim/batching/histogram.h"
#include "sim/batching/policies/min_max.h"
#include "tests/sim/batching/step_figures.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::test;

TEST_CASE("SST-2 on 4 ranks: spread and padded tokens of fixed and dynamic batches as published") {
  constexpr int kOrders = 40;
  constexpr std::size_t kSteps = 800;
  const auto histogram = read_histogram(source_root() + "/scenarios/lengths/sst2_train.json");
  MinMaxBatching options;
  options.global_batch = 48;
  options.buffer = 64;
  StepFigures fixed;
  StepFigures dynamic;
  const auto add = [](StepFigures& sum, const StepFigures& one) {
    sum.mean_std_padded += one.mean_std_padded / kOrders;
    sum.padded_per_step += one.padded_per_step / kOrders;
  };
  for (int order = 0; order < kOrders; ++order) {
    // The lengths in a random order: sample i is the i-th of the epoch.
    const auto lengths = sample_histogram(histogram, 0, 100 + static_cast<std::uint64_t>(order));
    std::vector<std::int64_t> ids;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      ids.push_back(static_cast<std::int64_t>(i));
    }
    auto orders = strided(ids, 4);
    add(fixed, step_figures(equal_counts(orders, 12), lengths, kSteps));
    add(dynamic, step_figures(min_max_steps(orders, lengths, options), lengths, kSteps));
  }
  MESSAGE("population std of padded tokens over ranks: fixed "
          << fixed.mean_std_padded << ", dynamic " << dynamic.mean_std_padded);
  MESSAGE("padded tokens a step: fixed " << fixed.padded_per_step << ", dynamic "
                                         << dynamic.padded_per_step);
  CHECK(std::abs(fixed.mean_std_padded / 87.69 - 1) <= 0.02);
  CHECK(std::abs(dynamic.mean_std_padded / 26.25 - 1) <= 0.04);
  CHECK(std::abs(fixed.padded_per_step / 1576.4 - 1) <= 0.015);
  CHECK(std::abs(dynamic.padded_per_step / 1533.0 - 1) <= 0.015);
}

#include "calibrate/live/diverged.h"

#include <limits>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "calibrate/live/live.h"
#include "tests/calibrate/measure/fake_backend.h"

namespace stepsim {
namespace {

/// Its loss is a number in the warm-up and in the first two steps.
class Diverging : public test::IdleBackend {
 public:
  TrainedStep train_step(std::span<const std::int64_t> /*lengths*/,
                         double /*loss_scale*/,
                         std::int64_t /*padded_length*/) override {
    TrainedStep step;
    step.end = 1e-3;
    step.loss = ++steps_ > 4 + 2 ? std::numeric_limits<double>::quiet_NaN() : 1;
    return step;
  }

 private:
  int steps_ = 0;
};

Plan one_rank(int steps) {
  Plan plan;
  plan.policy = "fixed";
  plan.ranks = 1;
  plan.steps = steps;
  plan.model = test::small_model();
  plan.initial_buckets = {ready_order(plan.model)};
  plan.buckets = plan.initial_buckets;
  for (int step = 0; step < steps; ++step) {
    MicroBatch batch;
    batch.step = step;
    batch.samples = {0};
    batch.lengths = {8};
    plan.micro_batches.push_back(batch);
  }
  return plan;
}

}  // namespace

TEST_CASE("a loss that is not finite ends no live run: it is said, and the times are kept") {
  std::vector<RunRecord> records;
  run_live(
      {one_rank(5)},
      [](const RankContext&, const TransformerConfig&, const std::vector<std::vector<int>>&)
          -> std::unique_ptr<Backend> { return std::make_unique<Diverging>(); },
      {},
      [](const LiveProgress&) {},
      records);
  REQUIRE(records.size() == 1);
  CHECK(records[0].steps.size() == 5);
  CHECK(diverged_text(records[0]) ==
        "the loss of fixed was not finite in 3 of 5 records, first in step 2 of repeat 0; the "
        "times are kept\n");
  records[0].steps.resize(2);
  CHECK(diverged_text(records[0]).empty());
}

}  // namespace stepsim

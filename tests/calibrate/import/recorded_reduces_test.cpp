#include "calibrate/import/recorded/recorded_reduces.h"

#include <doctest/doctest.h>

#include "tests/approx.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

/// 1 ms a MB, from 1 KB to 1 GB.
CollectiveCost alone() {
  CollectiveCost cost;
  cost.ranks = 2;
  for (double bytes = 1e3; bytes <= 1e9; bytes *= 10) {
    cost.knots.emplace_back(bytes, bytes * 1e-9);
  }
  return cost;
}

/// Two ranks' steps with buckets, all times from the start of the step in ms.
RunRecord record_of(const std::string& backend, const std::vector<BucketRecord>& buckets) {
  RunRecord record;
  record.world_size = 2;
  record.backend = backend;
  for (int step = 0; step < 16; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      StepRecord row;
      row.step = step;
      row.rank = rank;
      row.start_ms = 100.0 * step + rank;  // The second rank is 1 ms late with everything,
      row.buckets = buckets;
      for (BucketRecord& bucket : row.buckets) {
        bucket.end_ms -= rank;  // but all-reduces end together.
      }
      record.steps.push_back(row);
    }
  }
  return record;
}

std::vector<RecordedReduce> reduces_of(const RunRecord& record) {
  std::vector<RecordedReduce> reduces;
  add_reduces(record, reduces);
  return reduces;
}

/// An all-reduce of `bytes` that takes `factor` times as long as alone and beside compute 1 +
/// `transfer` times that, `share` of its work beside it.
RecordedReduce made(int step, std::int64_t bytes, double factor, double transfer, double share) {
  const double seconds = factor * 1e-9 * static_cast<double>(bytes);
  const double beside = seconds * share * (1 + transfer);
  return {step, bytes, seconds * (1 - share) + beside, beside};
}

}  // namespace

TEST_CASE("an all-reduce starts with its last rank, and what is computed beside it is told") {
  const auto reduces = reduces_of(record_of("nccl",
                                            {{
                                                 1000,
                                                 2,
                                                 9,
                                             },
                                             {2000, 11, 20},
                                             {500, 15, 25}}));
  REQUIRE(reduces.size() == 32);  // The third is launched before the second ends: it queues.
  CHECK(reduces[0].bytes == 1000);
  CHECK(reduces[0].seconds == Approx(6e-3));         // 3 to 9 ms,
  CHECK(reduces[0].beside_compute == Approx(6e-3));  // all before the last launch at 16 ms.
  CHECK(reduces[1].seconds == Approx(8e-3));         // 12 to 20 ms,
  CHECK(reduces[1].beside_compute == Approx(4e-3));  // of it 4 before.
  CHECK(reduces.back().step == 15);
}

TEST_CASE("gloo's two all-reduces on their way share the time, a third waits") {
  const auto reduces = reduces_of(record_of("gloo", {{1000, 2, 9}, {2000, 5, 20}, {500, 7, 25}}));
  REQUIRE(reduces.size() == 48);
  // From 3 ms alone, from 6 ms by two; after 9 ms the second and the third, after 20 the third.
  CHECK(reduces[0].seconds == Approx(3e-3 + 1.5e-3));
  CHECK(reduces[1].seconds == Approx(1.5e-3 + 5.5e-3));
  CHECK(reduces[2].seconds == Approx(5.5e-3 + 5e-3));
  CHECK(reduces[0].beside_compute == Approx(4e-3));  // Until 8 ms.
  CHECK(reduces[1].beside_compute == Approx(1e-3));
  CHECK(reduces[2].beside_compute == 0);
}

TEST_CASE("a planted factor and a planted slowdown beside compute are found") {
  std::vector<RecordedReduce> reduces;
  for (int step = 0; step < 16; ++step) {
    reduces.push_back(made(step, 1'000'000, 1.25, 0.8, 1.0));
    reduces.push_back(made(step, 20'000'000, 1.25, 0.8, 0.1));
    reduces.push_back(made(step, 4'000'000, 1.25, 0.8, 0.0));
  }
  const TrainingReduces training = fit_training_reduces(reduces, alone());
  CHECK(training.transfer == Approx(0.8));
  CHECK(training.factor == Approx(1.25));
  CHECK(training.error < 1e-9);
  REQUIRE(training.transfer_interval);
  CHECK(training.transfer_interval->first == Approx(0.8));
  CHECK(training.transfer_interval->second == Approx(0.8));

  CollectiveCost table = alone();
  table.knots[0].second *= 50;  // Smaller than any bucket: nobody asks how sure it is.
  table.errors.random = 3;
  apply(training, reduces, table);
  CHECK(table.knots[4].second == Approx(1.25e-2));
  CHECK(*table.errors.random < 1e-9);
}

TEST_CASE("steps that differ make an interval of the slowdown") {
  std::vector<RecordedReduce> reduces;
  for (int step = 0; step < 16; ++step) {
    reduces.push_back(made(step, 1'000'000, 1, step % 4 < 2 ? 0.6 : 1.0, 1.0));
    reduces.push_back(made(step, 20'000'000, 1, 0.8, 0.0));
  }
  const TrainingReduces training = fit_training_reduces(reduces, alone());
  CHECK(training.transfer == Approx(0.8).epsilon(0.02));
  REQUIRE(training.transfer_interval);
  // Eighths of the steps give 0.6 and 1.0 by turns: a deviation of 0.2.
  CHECK(training.transfer_interval->first == Approx(0.8 - 0.33).epsilon(0.05));
  CHECK(training.transfer_interval->second == Approx(0.8 + 0.33).epsilon(0.05));
}

TEST_CASE("without compute beside them there is a factor only") {
  std::vector<RecordedReduce> reduces;
  for (int step = 0; step < 8; ++step) {
    reduces.push_back(made(step, 1'000'000, 1.5, 0, 0));
    reduces.push_back(made(step, 9'000'000, 0.9, 0, 0));
  }
  const TrainingReduces training = fit_training_reduces(reduces, alone());
  CHECK(training.transfer == 0);
  CHECK_FALSE(training.transfer_interval);
  CHECK(training.factor == Approx(0.96));  // The sum is right: 9.6 ms of 10.
  CHECK(training.error == Approx((0.36 + 0.0667) / 2).epsilon(0.01));
  CollectiveCost table = alone();
  apply(training, reduces, table);
  CHECK(*table.errors.random == Approx(training.error));
  CHECK(fit_training_reduces({}, alone()).factor == 1);
}

#include "calibrate/live/emulated_ranks.h"

#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "tests/calibrate/measure/fake_backend.h"

namespace stepsim {
namespace {

TrainedStep step_of(std::vector<double> launches) {
  TrainedStep step;
  for (const double launch : launches) {
    step.buckets.push_back({100, launch, 0});
  }
  return step;
}

/// Half a second for every hundred bytes.
double half_second(std::int64_t bytes) {
  return static_cast<double>(bytes) / 200;
}

/// Rank 1's last bucket comes a second after rank 0's; stand-ins last as long as they are told.
class TwoSpeeds : public test::IdleBackend {
 public:
  TrainedStep emulate_step(std::span<const std::int64_t> lengths,
                           double /*loss_scale*/,
                           std::int64_t /*padded_length*/,
                           std::span<const StandIn> collectives) override {
    const auto compute = static_cast<double>(lengths[0]);
    TrainedStep step = step_of({compute - 1, compute});
    double end = 0;  // Of the communication stream.
    for (std::size_t i = 0; i < collectives.size(); ++i) {
      end = std::max(end, step.buckets[i].launch) + collectives[i].wait + collectives[i].transfer;
      step.buckets[i].end = end;
    }
    step.start = 1000;  // Of the one device, whatever rank it plays.
    step.end = 1000 + std::max(compute, end);
    return step;
  }
};

}  // namespace

TEST_CASE("a stand-in waits for the slowest rank and for the collective before it") {
  const std::vector<double> starts = {10, 10.25};
  const std::vector<TrainedStep> alone = {step_of({1, 2}), step_of({2, 2.25})};
  const auto stand_ins = schedule_stand_ins(starts, alone, half_second);
  REQUIRE(stand_ins.size() == 2);
  // First bucket: launched at 11 and 12.25, ends at 12.75 on both.
  CHECK(stand_ins[0][0].wait == doctest::Approx(1.25));
  CHECK(stand_ins[1][0].wait == doctest::Approx(0));
  CHECK(stand_ins[1][0].transfer == doctest::Approx(0.5));
  // Second: launched at 12 and 12.5, before the communicator is free.
  CHECK(stand_ins[0][1].wait == doctest::Approx(0));
  CHECK(stand_ins[1][1].wait == doctest::Approx(0));
}

TEST_CASE("emulated ranks end a step together and keep their own clocks") {
  TwoSpeeds device;
  EmulatedRanks ranks(device, 2, half_second);
  MicroBatch fast;
  fast.lengths = {4};
  MicroBatch slow;
  slow.rank = 1;
  slow.lengths = {5};
  const std::vector<const MicroBatch*> batches = {&fast, &slow};
  const std::vector<TrainedStep> first = ranks.train_step(batches);
  REQUIRE(first.size() == 2);
  CHECK(first[0].start == 0);
  CHECK(first[0].end == doctest::Approx(first[1].end));
  CHECK(first[0].buckets[1].end == doctest::Approx(first[1].buckets[1].end));
  const std::vector<TrainedStep> second = ranks.train_step(batches);
  CHECK(second[0].start == doctest::Approx(first[0].end));
  CHECK(second[1].end == doctest::Approx(second[0].end));
}

TEST_CASE("a backend without stand-ins says so") {
  test::IdleBackend backend;
  EmulatedRanks ranks(backend, 1, half_second);
  MicroBatch batch;
  batch.lengths = {4};
  const std::vector<const MicroBatch*> batches = {&batch};
  CHECK_THROWS_WITH_AS(static_cast<void>(ranks.train_step(batches)),
                       "ranks can be emulated on a CUDA device only; use --device cuda",
                       InputError);
}

}  // namespace stepsim

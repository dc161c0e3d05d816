// What wall and processor times say of other programs.
#include "calibrate/import/recorded/recorded_cores.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "tests/approx.h"
#include "tests/calibrate/import/recorded_training.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

/// A run of two ranks whose forwards take `slowed(step)` times their processor time.
template <typename Slowed>
RecordedRun run_slowed(Slowed slowed) {
  RecordedRun run = test::made_run({.steps = 82});
  for (StepRecord& row : run.record.steps) {
    row.forward_ms = row.forward_cpu_ms * slowed(row);
  }
  return run;
}

TEST_CASE("other programs: wall over processor time of the forwards, and what runs differ by") {
  const auto steady = run_slowed([](const StepRecord& /*row*/) { return 2.0; });
  CHECK(crowded_machine(std::vector{steady}, 0).slowed == Approx(2));
  CHECK(crowded_machine(std::vector{steady}, 0).run_spread == Approx(0).epsilon(1e-9));

  // Quarters at 2 and 2 e^0.4 times by turns: deviation 0.2 sqrt(8/7) of eighths, over sqrt(8).
  const auto uneven = run_slowed([](const StepRecord& row) {
    return 2 * std::exp(((row.step - test::kMadeWarmup) / 20) % 2 == 0 ? 0.0 : 0.4);
  });
  const CrowdedMachine crowded = crowded_machine(std::vector{uneven}, 0);
  CHECK(crowded.slowed > 2);
  CHECK(crowded.run_spread == Approx(0.2 / std::sqrt(7)).epsilon(1e-6));
}

TEST_CASE("other programs: none on a machine where forwards take their processor time") {
  const auto idle = run_slowed([](const StepRecord& /*row*/) { return 1.05; });
  CHECK(crowded_machine(std::vector{idle}, 0) == CrowdedMachine{});
  // Rank 1 waits in its forward for the buffers of rank 0.
  const auto waits = run_slowed([](const StepRecord& row) { return row.rank == 1 ? 3.0 : 1.0; });
  CHECK(crowded_machine(std::vector{waits}, 0) == CrowdedMachine{});
  // Two ranks that share one core have half of it each, whatever else runs.
  const auto shared = run_slowed([](const StepRecord& /*row*/) { return 2.0; });
  CHECK(crowded_machine(std::vector{shared}, 1).slowed < 1.5);
}

TEST_CASE("other programs: none where no processor times were recorded") {
  const RecordedRun run = test::made_run({.recorded = test::Recorded::Buckets});
  CHECK(crowded_machine(std::vector{run}, 0) == CrowdedMachine{});
}

}  // namespace
}  // namespace stepsim

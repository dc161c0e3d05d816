#pragma once

#include <utility>
#include <vector>

#include "sim/batching/step_batches.h"

namespace stepsim::test {

/// [step][rank] The samples, or parts of them, of the first `count` steps.
[[nodiscard]] inline std::vector<std::vector<std::vector<Piece>>> steps_of(
    const BatchingPolicy& policy, PolicyInput input, int count) {
  const EpochPlan first = plan_epoch(policy, input);
  StepBatches batches(policy, std::move(input), first);
  std::vector<std::vector<std::vector<Piece>>> steps;
  for (int step = 0; step < count; ++step) {
    steps.push_back(batches.next());
  }
  return steps;
}

}  // namespace stepsim::test

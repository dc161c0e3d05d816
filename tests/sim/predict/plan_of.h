#pragma once

#include "sim/predict/batch_plan.h"
#include "sim/predict/step_cost.h"

namespace stepsim::test {

/// The plan that `stepsim plan` writes: a policy that plans by time does so with the profile that
/// the scenario names.
[[nodiscard]] inline Plan plan_of(const Scenario& scenario, const BatchingPolicy& policy) {
  return plan_policy(scenario, policy, planning_cost(scenario, policy)).plan;
}

}  // namespace stepsim::test

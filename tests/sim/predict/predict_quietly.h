#pragma once

#include <string_view>

#include "sim/predict/predict.h"

namespace stepsim::test {

/// A policy of a scenario, the first one unless named, by the scenario's own prices without noise.
[[nodiscard]] inline Prediction predict_quietly(const Scenario& scenario,
                                                std::string_view policy = "") {
  return predict(
      scenario, find_policy(scenario, policy), scenario_profile(scenario), {.noise_runs = 0});
}

}  // namespace stepsim::test

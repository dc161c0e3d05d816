// Predicts two batching policies of a scenario with the installed library:
//
//   c++ -std=c++20 two_policies.cpp $(pkg-config --cflags --libs stepsim-sim) -o two_policies
//   ./two_policies scenarios/token_skew.toml variable_fixed bucketing

#include <cstdio>
#include <exception>

#include "sim/predict/predict.h"

int main(int count, char** arguments) {
  if (count != 4) {
    std::fputs("usage: two_policies SCENARIO POLICY POLICY\n", stderr);
    return 2;
  }
  try {
    const stepsim::Scenario scenario = stepsim::read_scenario(arguments[1]);
    const stepsim::Profile profile = stepsim::scenario_profile(scenario);
    for (const char* name : {arguments[2], arguments[3]}) {
      const stepsim::BatchingPolicy& policy = stepsim::find_policy(scenario, name);
      const stepsim::Prediction prediction = stepsim::predict(scenario, policy, profile, {});
      const stepsim::StepTimeSummary& step = prediction.summary.step_time_ms;
      std::printf("%s: %.3f ms a step (%.3f to %.3f), %.0f useful tokens/s\n",
                  name,
                  step.mean,
                  step.low90,
                  step.high90,
                  prediction.summary.useful_tokens_per_s());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}

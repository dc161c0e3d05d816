// Predicts two batching policies of a scenario with the installed library:
//
//   c++ -std=c++20 two_policies.cpp $(pkg-config --cflags --libs stepsim) -o two_policies
//   ./two_policies scenarios/token_skew.toml variable_fixed bucketing

#include <cstdio>

#include <stepsim.h>

int main(int count, char** arguments) {
  if (count != 4) {
    std::fputs("usage: two_policies SCENARIO POLICY POLICY\n", stderr);
    return 2;
  }
  try {
    const stepsim::Job job(stepsim::Scenario::read(arguments[1]));
    for (const char* policy : {arguments[2], arguments[3]}) {
      const stepsim::Prediction prediction = job.predict({}, policy);
      std::printf("%s: %.3f ms a step (%.3f to %.3f), %.0f useful tokens/s\n",
                  policy,
                  prediction.step_ms,
                  prediction.low90_ms,
                  prediction.high90_ms,
                  prediction.useful_tokens_per_s);
    }
  } catch (const stepsim::InputError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}

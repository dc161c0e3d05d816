// What advice says first: whether the fit explains the steps that it was made of.
#include "sim/report/advice/advice_report.h"

#include <doctest/doctest.h>

#include "sim/scenario/scenario.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;

namespace {

/// A step of 400 ms, 350 to 450, of which these were recorded.
Advice advice_of(const RecordedSteps& steps) {
  Advice advice;
  Prediction prediction;
  prediction.policy = advice.recorded = "fixed 8";
  prediction.summary.step_time_ms = {400, 400, 420, 430, 440, 350, 450};
  prediction.summary.useful_tokens_per_step = 1000;
  advice.predictions = {prediction};
  advice.steps = steps;
  advice.caps.caps.resize(1);
  advice.blame.step_ms = 400;
  return advice;
}

std::string first_line(const RecordedSteps& steps) {
  const Scenario scenario = parse_scenario(test::kScenarioText, "s.toml");
  return advice_lines(scenario, advice_of(steps)).front();
}

}  // namespace

TEST_CASE("advice begins with the recorded steps where the fit does not explain them") {
  CHECK(first_line({420, 410, 0.99}).starts_with("your step:    400 ms with fixed 8"));
  CHECK(first_line({449, 200, 0.3}).starts_with("your step:"));
  CHECK(first_line({365, 365, {}}).starts_with("your step:"));
  CHECK(
      first_line({1099, 1000, 0.41}) ==
      "check first:  the recorded steps took 1099 ms in the mean, longer than the 350 to 450 ms of "
      "the prediction of their own batches: all below may be off by as much. The ranks had a "
      "processor for 41 % of their forward and backward: other programs took the rest. Record "
      "again while nothing else runs");
  CHECK(first_line({1099, 410, 0.97}).find("Half of the steps took less than 410 ms") !=
        std::string::npos);
  CHECK(first_line({300, 300, {}}).find("300 ms in the mean, less than") != std::string::npos);
  CHECK(first_line({300, 300, {}}).find("does not say why") != std::string::npos);
}

TEST_CASE("advice says first that other programs ran while it was recorded") {
  const Scenario scenario = parse_scenario(test::kScenarioText, "s.toml");
  Advice advice = advice_of({420, 410, 0.4});
  advice.crowded = {2.5, 0.1};
  const std::string line = advice_lines(scenario, advice).front();
  CHECK(line.starts_with("check first:  other programs kept the machine busy"));
  CHECK(line.find("steps took 2.50 times their processor time") != std::string::npos);
}

TEST_CASE("advice holds the record against the interval of its own hour") {
  const Scenario scenario = parse_scenario(test::kScenarioText, "s.toml");
  Advice advice = advice_of({449, 200, 0.3});
  StepTimeSummary& step = advice.predictions.front().summary.step_time_ms;
  step.same_hour_low90 = 390;
  step.same_hour_high90 = 410;
  CHECK(advice_lines(scenario, advice).front().find("longer than the 390 to 410 ms") !=
        std::string::npos);
  advice.steps.mean_ms = 405;
  CHECK(advice_lines(scenario, advice)
            .front()
            .find("350 to 450 at any hour, 390 to 410 in the hour of the recording") !=
        std::string::npos);
}

TEST_CASE("advice names another bucket cap only where its gain is certain") {
  const Scenario scenario = parse_scenario(test::kScenarioText, "s.toml");
  const auto line = [&](const Gain& gain) {
    Advice advice = advice_of({420, 410, 0.99});
    advice.caps = {{{Bytes(8 << 20), 390, ""}, {Bytes(25 << 20), 400, ""}},
                   Bytes(25 << 20),
                   Bytes(8 << 20),
                   gain};
    return advice_lines(scenario, advice)[2];
  };
  CHECK(line({0.03, {0.01, 0.05}, 0.97}) ==
        "bucket cap:   8 MiB in place of 25 MiB: +3.0 % useful tokens/s, 90 % interval +1.0 to "
        "+5.0 %");
  // Faster in all draws, and by less than a live run could show; or by more, and not in most.
  CHECK(
      line({0.004, {0.001, 0.007}, 1})
          .starts_with("bucket cap:   Nothing to gain here, at most 0.7 %: keep 25 MiB (8 MiB: "));
  CHECK(
      line({0.03, {-0.05, 0.1}, 0.7})
          .starts_with("bucket cap:   Nothing certain to gain here, at most 10.0 %: keep 25 MiB "));
}

#include "sim/validate.h"

#include <doctest/doctest.h>

#include "costmodel/input_error.h"

using namespace stepsim;

namespace {

/// Two ranks, three steps (step 0 is warm-up), every step `ms` long on the slower rank.
Prediction predicted(const std::string& policy, double ms) {
  Prediction prediction;
  prediction.policy = policy;
  prediction.summary.step_time_ms = {ms, ms, ms, ms, ms, ms * 0.95, ms * 1.05};
  prediction.summary.useful_tokens_per_step = 200;
  for (int step = 0; step < 3; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      RankStepResult row;
      row.step = step;
      row.rank = rank;
      row.useful_tokens = 100;
      row.padded_tokens = 120;
      row.step_ms = rank == 0 ? ms : ms * 0.9;
      prediction.steps.push_back(row);
    }
  }
  return prediction;
}

RunRecord measured(const std::string& policy, std::vector<double> ms_of_repeat) {
  RunRecord record;
  record.policy = policy;
  record.world_size = 2;
  for (std::size_t repeat = 0; repeat < ms_of_repeat.size(); ++repeat) {
    for (int step = 0; step < 3; ++step) {
      for (int rank = 0; rank < 2; ++rank) {
        StepRecord row;
        row.repeat = static_cast<int>(repeat);
        row.step = step;
        row.rank = rank;
        row.useful_tokens = 100;
        row.padded_tokens = 120;
        row.step_ms = step == 0 ? 500 : ms_of_repeat[repeat] * (rank == 1 ? 1 : 0.8);
        record.steps.push_back(row);
      }
    }
  }
  return record;
}

}  // namespace

TEST_CASE("errors, repeatability and coverage are of the steady steps' global times") {
  const Validation result =
      validate({predicted("a", 11)}, {}, {measured("a", {9.9, 10.1})}, 1, 0.0);
  REQUIRE(result.policies.size() == 1);
  const PolicyValidation& policy = result.policies[0];
  CHECK(policy.measured_mean == doctest::Approx(10));
  CHECK(policy.error_mean == doctest::Approx(0.1));
  CHECK(policy.step_error == doctest::Approx(0.1));
  // Two repeats 0.1 either side: sd with n - 1 is 0.1414.
  CHECK(policy.repeatability == doctest::Approx(0.014142).epsilon(1e-3));
  CHECK_FALSE(policy.covered);
  CHECK(validate({predicted("a", 10.2)}, {}, {measured("a", {10})}, 1, 0.0).policies[0].covered);
}

TEST_CASE("a wrong recommendation costs its regret, and a reference case is no choice") {
  const Validation result =
      validate({predicted("reference", 1), predicted("a", 10), predicted("b", 12)},
               {"reference"},
               {measured("reference", {1}), measured("a", {12}), measured("b", {10})},
               1,
               0.0);
  CHECK(result.recommended == "a");
  CHECK(result.truly_best == "b");
  CHECK(result.regret == doctest::Approx(0.2));
  CHECK(result.kendall_tau == doctest::Approx(1.0 / 3));
}

TEST_CASE("Kendall's tau counts agreeing less disagreeing pairs") {
  CHECK(kendall_tau({1, 2, 3}, {10, 20, 30}) == 1);
  CHECK(kendall_tau({1, 2, 3}, {30, 20, 10}) == -1);
  CHECK(kendall_tau({1}, {1}) == 1);
}

TEST_CASE("the sentinel tells how fast the machine was during the run") {
  RunRecord record = measured("a", {10});
  record.sentinel_ms = {6, 5.5, 5};
  CHECK(validate({predicted("a", 10)}, {}, {record}, 1, 0.005).machine_speed ==
        doctest::Approx(1.1));
}

TEST_CASE("a record that ran other batches than the plan is refused") {
  RunRecord record = measured("a", {10});
  record.steps[3].useful_tokens = 99;
  CHECK_THROWS_WITH_AS(
      (void)validate({predicted("a", 10)}, {}, {record}, 1, 0.0),
      "policy 'a', step 1, rank 1: the record ran 99 useful and 120 padded tokens, "
      "the plan has 100 and 120; it was run from another plan",
      InputError);
  record = measured("a", {10});
  record.steps.back().step = 7;
  CHECK_THROWS_WITH_AS(
      (void)validate({predicted("a", 10)}, {}, {record}, 1, 0.0),
      "policy 'a', step 7, rank 1: the record has it, the scenario's plan does not",
      InputError);
}

TEST_CASE("records without a policy in common, or twice the same policy, are refused") {
  CHECK_THROWS_AS((void)validate({predicted("a", 10)}, {}, {measured("b", {10})}, 1, 0.0),
                  InputError);
  CHECK_THROWS_AS(
      (void)validate({predicted("a", 10)}, {}, {measured("a", {10}), measured("a", {10})}, 1, 0.0),
      InputError);
}

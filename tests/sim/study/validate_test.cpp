#include "sim/study/validate.h"

#include <cmath>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "tests/approx.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

/// Two ranks, three steps (step 0 is warm-up), every step `ms` long on the slower rank.
Prediction predicted(const std::string& policy, double ms) {
  Prediction prediction;
  prediction.policy = policy;
  prediction.summary.step_time_ms = {
      ms, ms, ms, ms, ms, ms * 0.95, ms * 1.05, ms * 0.99, ms * 1.01};
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
  CHECK(policy.measured_mean == Approx(10));
  CHECK(policy.error_mean == Approx(0.1));
  CHECK(policy.step_error == Approx(0.1));
  // Two repeats 0.1 either side: sd with n - 1 is 0.1414.
  CHECK(policy.repeatability == Approx(0.014142).epsilon(1e-3));
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
  CHECK(result.regret == Approx(0.2));
  CHECK(result.kendall_tau == Approx(1.0 / 3));
}

TEST_CASE("an error below two standard errors of the measured mean is within repeatability") {
  // Means 9, 10, 11, 10: sd 0.8165, standard error 0.4082 of 10.
  const auto check = [](double ms) {
    return validate({predicted("a", ms)}, {}, {measured("a", {9, 10, 11, 10})}, 1, 0.0).policies[0];
  };
  CHECK(check(10.8).standard_error == Approx(0.040825).epsilon(1e-4));
  CHECK(check(10.81).within_repeatability());
  CHECK(check(9.19).within_repeatability());
  CHECK_FALSE(check(10.82).within_repeatability());
  const PolicyValidation once =
      validate({predicted("a", 10)}, {}, {measured("a", {10})}, 1, 0.0).policies[0];
  CHECK_FALSE(once.standard_error.has_value());
  CHECK_FALSE(once.within_repeatability());
}

TEST_CASE("pairs that the live runs cannot tell are counted apart") {
  // a and b differ by 0.2 ms with standard errors of 0.1 each; c is far off. Predicted: b before a.
  const Validation result = validate(
      {predicted("a", 11), predicted("b", 10), predicted("c", 20)},
      {},
      {measured("a", {9.9, 10.1}), measured("b", {10.1, 10.3}), measured("c", {19.9, 20.1})},
      1,
      0.0);
  CHECK(result.kendall_tau == Approx(1.0 / 3));
  CHECK(result.pairs == 3);
  CHECK(result.distinguishable_pairs == 2);
  CHECK(result.distinguishable_kendall_tau == 1);
  CHECK(result.recommended == "b");
  CHECK(result.truly_best == "a");
  CHECK(result.regret == Approx(0.02));
  REQUIRE(result.regret_resolution.has_value());
  CHECK(*result.regret_resolution ==
        Approx(2 * std::hypot(0.1 / 10, 0.1 / 10.2) * 1.02).epsilon(0.01));
  CHECK(result.regret < *result.regret_resolution);
}

TEST_CASE("with one pass no pair can be told") {
  const Validation result = validate({predicted("a", 10), predicted("b", 20)},
                                     {},
                                     {measured("a", {10}), measured("b", {20})},
                                     1,
                                     0.0);
  CHECK(result.kendall_tau == 1);
  CHECK(result.distinguishable_pairs == 0);
  CHECK_FALSE(result.distinguishable_kendall_tau.has_value());
  CHECK_FALSE(result.regret_resolution.has_value());
}

TEST_CASE("single steps are counted below the predicted p50 and p95") {
  Prediction prediction = predicted("a", 10);
  prediction.summary.step_time_ms.p50 = 10;
  prediction.summary.step_time_ms.p95 = 12.5;
  // Two steady steps a pass; a step of 10 is not below 10.
  const Validation result =
      validate({prediction}, {}, {measured("a", {9, 10, 11, 12, 13})}, 1, 0.0);
  CHECK(result.policies[0].measured_steps == 10);
  CHECK(result.policies[0].below_p50 == Approx(0.2));
  CHECK(result.below_p95 == Approx(0.8));
}

TEST_CASE("a run that takes just the predicted times has no error, however often it is repeated") {
  // Steps of 10 and 20 ms: 95 % of them take up to 20, whether there are two or two a pass.
  Prediction prediction = predicted("a", 10);
  RunRecord record = measured("a", {10, 10, 10});
  for (RankStepResult& row : prediction.steps) {
    row.step_ms *= row.step == 2 ? 2 : 1;
  }
  for (StepRecord& row : record.steps) {
    row.step_ms *= row.step == 2 ? 2 : 1;
  }
  prediction.summary.step_time_ms = {15, 15, 20, 20, 20, 15, 15};
  const PolicyValidation three = validate({prediction}, {}, {record}, 1, 0.0).policies[0];
  record.steps.resize(6);
  const PolicyValidation once = validate({prediction}, {}, {record}, 1, 0.0).policies[0];
  for (const PolicyValidation& policy : {three, once}) {
    CHECK(policy.measured_p95 == 20);
    CHECK(policy.error_mean == 0);
    CHECK(policy.error_p50 == 0);
    CHECK(policy.error_p95 == 0);
  }
}

TEST_CASE("quantiles of a record of some of the steps are of those steps") {
  // The longer step of 10 and 30 ms was recorded, and noise makes every step a fifth longer.
  Prediction prediction = predicted("a", 10);
  for (RankStepResult& row : prediction.steps) {
    row.step_ms *= row.step == 2 ? 3 : 1;
  }
  prediction.summary.step_time_ms = {24, 24, 36, 36, 36, 20, 28};
  RunRecord record = measured("a", {36});
  record.steps.erase(record.steps.begin() + 2, record.steps.begin() + 4);
  const PolicyValidation policy = validate({prediction}, {}, {record}, 1, 0.0).policies[0];
  CHECK(policy.predicted.mean == Approx(36));
  CHECK(policy.predicted.p50 == Approx(36));
  CHECK(policy.predicted.p95 == Approx(36));
  CHECK(policy.predicted.high90 == Approx(42));
  CHECK(policy.error_p95 == Approx(0));
}

TEST_CASE("several files of one policy are more passes, and drift between them counts") {
  const Validation result =
      validate({predicted("a", 10)},
               {},
               {measured("a", {9.8, 10, 10.2}), measured("a", {11.8, 12, 12.2})},
               1,
               0.0);
  const PolicyValidation& policy = result.policies[0];
  CHECK(policy.files == 2);
  CHECK(policy.repeats == 6);
  CHECK(policy.measured_mean == Approx(11));
  // Passes alone would give 1.1 / sqrt(6) = 0.45; the files' means 10 and 12 give 1.414 / sqrt(2).
  CHECK(*policy.standard_error * 11 == Approx(1));
  CHECK(*policy.standard_error > policy.repeatability / std::sqrt(6.0));
}

TEST_CASE("the error is shared out among the parts of the step") {
  Prediction prediction = predicted("a", 12);
  prediction.summary.data_ms = 1;
  prediction.summary.forward_ms = 3;
  prediction.summary.backward_ms = 5;
  prediction.summary.exposed_communication_ms = 1;
  prediction.summary.optimizer_ms = 1;
  RunRecord record = measured("a", {10});
  for (StepRecord& row : record.steps) {
    row.data_ms = 1;
    row.forward_ms = 2;
    row.backward_ms = 5.5;
    row.wait_ms = row.rank == 0 ? 1 : 0;
    row.optimizer_ms = row.step == 0 ? 99 : 1;  // Warm-up.
  }
  PolicyValidation policy = validate({prediction}, {}, {record}, 1, 0.0).policies[0];
  std::vector<double> errors;
  for (const PartError& part : part_errors(policy)) {
    errors.push_back(part.error);
  }
  // data, forward, backward, exposed, optimizer, other: 12 - 11 against 10 - 10.
  const std::vector<double> expected = {0, 0.1, -0.05, 0.05, 0, 0.1};
  REQUIRE(errors.size() == expected.size());
  for (std::size_t i = 0; i < errors.size(); ++i) {
    CHECK(errors[i] == Approx(expected[i]));
  }
  CHECK(largest_part_error(policy).part == "forward");

  for (StepRecord& row : record.steps) {  // As a record whose backward holds the wait.
    row.backward_ms += row.wait_ms;
    row.wait_ms = 0;
  }
  policy = validate({prediction}, {}, {record}, 1, 0.0).policies[0];
  CHECK_FALSE(policy.states_wait);
  CHECK(policy.measured_parts.backward == Approx(6));
  CHECK(policy.predicted_parts.backward == Approx(6));
  CHECK(part_errors(policy).size() == 5);
}

TEST_CASE("a pass that was cut short, and a step that not all ranks finished, are left out") {
  RunRecord record = measured("a", {10, 10, 30});
  record.steps.pop_back();
  const Validation result = validate({predicted("a", 10)}, {}, {record}, 1, 0.0);
  CHECK(result.policies[0].repeats == 2);
  CHECK(result.policies[0].measured_mean == Approx(10));
  REQUIRE(result.warnings.size() == 1);
  CHECK(result.warnings[0] == "policy 'a': 1 of 3 passes cut short and left out");
}

TEST_CASE("policies on one side only, and steps that were not recorded, are said") {
  RunRecord record = measured("a", {10});
  record.steps.resize(4);
  const Validation result = validate({predicted("a", 10), predicted("b", 10), predicted("d", 10)},
                                     {},
                                     {record, measured("c", {10})},
                                     1,
                                     0.0);
  REQUIRE(result.warnings.size() == 3);
  CHECK(result.warnings[0] ==
        "policy 'a': 1 of 2 steady steps were recorded, which the "
        "prediction is taken of");
  CHECK(result.warnings[1] == "policy 'c' was recorded but is not in the scenario");
  CHECK(result.warnings[2] == "no live run of b, d: order and regret are for the other policies");
}

TEST_CASE("a record of some of the steps is compared with the prediction of those steps") {
  // The third step, which was not recorded, is twice as long and has three times the tokens.
  Prediction prediction = predicted("a", 10);
  for (RankStepResult& row : prediction.steps) {
    row.forward_ms = row.step_ms;
    if (row.step == 2) {
      row.step_ms *= 2;
      row.forward_ms *= 2;
      row.useful_tokens *= 3;
    }
  }
  prediction.summary.step_time_ms = {18, 18, 18, 18, 18, 15, 21};  // 15 without noise.
  prediction.summary.forward_ms = 14.25;
  prediction.summary.useful_tokens_per_step = 400;
  RunRecord record = measured("a", {12});
  record.steps.resize(4);
  const Validation result = validate({prediction}, {}, {record}, 1, 0.0);
  const PolicyValidation& policy = result.policies[0];
  CHECK(policy.predicted.mean == Approx(12));
  CHECK(policy.predicted.low90 == Approx(10));
  CHECK(policy.error_mean == Approx(0));
  CHECK(policy.predicted_parts.forward == Approx(9.5));
  CHECK(policy.predicted_tokens_per_s == Approx(200 * 1e3 / 12));
  CHECK(policy.measured_tokens_per_s == Approx(200 * 1e3 / 12));
}

TEST_CASE("policies without a name in common are named on both sides") {
  CHECK_THROWS_WITH_AS(
      (void)validate({predicted("a", 10), predicted("b", 10)},
                     {},
                     {measured("d", {10}), measured("c", {10}), measured("c", {10})},
                     1,
                     0.0),
      "the live records and the scenario have no policy in common: recorded 'c', 'd', predicted "
      "'a', 'b'; name them alike, in the scenario or in the records",
      InputError);
}

TEST_CASE("Kendall's tau counts agreeing less disagreeing pairs") {
  CHECK(kendall_tau({1, 2, 3}, {10, 20, 30}) == 1);
  CHECK(kendall_tau({1, 2, 3}, {30, 20, 10}) == -1);
  CHECK(kendall_tau({1}, {1}) == 1);
}

TEST_CASE("the sentinel tells how fast the machine was during the run") {
  RunRecord record = measured("a", {10});
  record.sentinel_ms = {6, 5.5, 5};
  CHECK(validate({predicted("a", 10)}, {}, {record}, 1, 0.005).machine_speed == Approx(1.1));
}

TEST_CASE("a sentinel is compared with that of the same model, timed by the same program") {
  Profile profile;
  RunRecord record = measured("a", {10});
  CHECK(has_sentinel_of(record, profile));
  (*record.training)["sentinel_model"] = {{"family", "gpt2"}, {"layers", 2}};
  CHECK_FALSE(has_sentinel_of(record, profile));
  (*profile.provenance)["plan"]["model"] = {{"family", "gpt2"}, {"layers", 2}};
  CHECK_FALSE(has_sentinel_of(record, profile));
  (*profile.provenance)["versions"]["measured_by"] = "pytorch";
  CHECK(has_sentinel_of(record, profile));
  (*profile.provenance)["plan"]["model"]["layers"] = 3;
  CHECK_FALSE(has_sentinel_of(record, profile));
  (*profile.provenance)["versions"] = "none";
  CHECK_FALSE(has_sentinel_of(record, profile));
}

TEST_CASE("a record that ran other batches than the plan is refused") {
  RunRecord record = measured("a", {10});
  record.steps[3].useful_tokens = 99;
  CHECK_THROWS_WITH_AS(
      (void)validate({predicted("a", 10)}, {}, {record}, 1, 0.0),
      "policy 'a', step 1, rank 1: the record ran 99 useful and 120 padded tokens, "
      "the plan has 100 and 120; it was run from another plan: the scenario has other samples than "
      "the training (stepsim advise RECORD --lengths FILE makes one with the tokens of each), or "
      "another seed, or the policy plans by predicted time and had another profile (--profile)",
      InputError);
  record.plan_profile = "lab";
  record.plan_profile_id = "0a";
  Prediction other = predicted("a", 10);
  other.profile = "base";
  other.profile_id = "0b";
  CHECK_THROWS_WITH_AS(
      (void)validate({other}, {}, {record}, 1, 0.0),
      "policy 'a', step 1, rank 1: the record ran 99 useful and 120 padded tokens, the plan has "
      "100 "
      "and 120; its plan was made with profile 'lab' (id 0a), the prediction with 'base' (id 0b), "
      "and policies that plan by predicted time follow their profile: predict with --profile and "
      "the former, or plan and run again",
      InputError);
  record = measured("a", {10});
  record.steps.back().step = 7;
  CHECK_THROWS_WITH_AS(
      (void)validate({predicted("a", 10)}, {}, {record}, 1, 0.0),
      "policy 'a', step 7, rank 1: the record has it, the scenario's plan does not",
      InputError);
}

TEST_CASE("records without a policy in common, or the same live run twice, are refused") {
  CHECK_THROWS_AS((void)validate({predicted("a", 10)}, {}, {measured("b", {10})}, 1, 0.0),
                  InputError);
  CHECK_THROWS_WITH_AS(
      (void)validate({predicted("a", 10)}, {}, {measured("a", {10}), measured("a", {10})}, 1, 0.0),
      "policy 'a': the same live run is given twice",
      InputError);
  CHECK_THROWS_AS(
      (void)validate({predicted("a", 10), predicted("a", 11)}, {}, {measured("a", {10})}, 1, 0.0),
      InputError);
}

TEST_CASE("a run beside the recording of the costs is held against the interval of its hour") {
  RunRecord record = measured("a", {10});
  record.host = "lab";
  record.started_at = "2026-11-23T06:32:03Z";
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    record.steps[i].start_ms = 1000 + 10 * static_cast<double>(record.steps[i].step);
  }
  const auto validated = [&](double ms, const RecordingSpan& span) {
    return validate({predicted("a", ms)}, {}, {record}, 1, 0.0, {span}).policies[0];
  };
  const RecordingSpan beside{"lab", "2026-11-23T06:32:01Z", 900, 2000};
  CHECK(validated(10.05, beside).beside_recording);
  CHECK(validated(10.05, beside).covered);
  CHECK_FALSE(validated(10.3, beside).covered);
  CHECK(validated(10.3, beside).predicted.high90 == Approx(10.3 * 1.01));
  // Another host, another day of its clock, another hour: the interval of any hour.
  for (const RecordingSpan& span : {RecordingSpan{"other", beside.started_at, 900, 2000},
                                    RecordingSpan{"lab", "2026-11-25T06:32:01Z", 900, 2000},
                                    RecordingSpan{"lab", beside.started_at, 100, 1010}}) {
    CHECK_FALSE(validated(10.3, span).beside_recording);
    CHECK(validated(10.3, span).covered);
  }
}

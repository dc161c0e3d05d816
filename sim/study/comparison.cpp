#include "sim/study/comparison.h"

#include "costmodel/base/mapped.h"
#include "sim/points/prediction_members.h"
#include "sim/predict/predict.h"

namespace stepsim {

STEPSIM_MEMBERS(ShapeCure, key, now_ms, cured_ms)

STEPSIM_MEMBERS(ComparedPolicy, prediction, planning_seconds, cure)

namespace {

/// A policy's name is its point.
std::vector<std::string> policy_names(const Scenario& scenario) {
  return mapped(scenario.policies, &BatchingPolicy::name);
}

/// What predicts one policy, by its name.
std::function<ComparedPolicy(const std::string&)> compare_work(const Scenario& scenario,
                                                               const Profile& profile,
                                                               KeptRows rows) {
  return [&, rows](const std::string& name) {
    const BatchingPolicy& policy = find_policy(scenario, name);
    ComparedPolicy compared;
    PredictOptions options;
    options.training_effects = true;
    options.rows = rows;
    options.on_planned = [&](double seconds) { compared.planning_seconds = seconds; };
    compared.prediction = predict(scenario, policy, profile, options);
    if (compared.prediction.shapes) {
      compared.cure = cheapest_cure(scenario, policy, profile, compared.prediction);
    }
    return compared;
  };
}

}  // namespace

std::vector<ComparedPolicy> compare_policies(const Scenario& scenario,
                                             const Profile& profile,
                                             KeptRows rows,
                                             PointRunner& runner,
                                             const ProgressCallback& on_progress) {
  return runner.evaluate(
      policy_names(scenario), compare_work(scenario, profile, rows), on_progress);
}

std::size_t keep_compared(const Scenario& scenario,
                          const Profile& profile,
                          PointRunner& runner,
                          const ProgressCallback& on_progress) {
  return runner.keep(
      policy_names(scenario), compare_work(scenario, profile, KeptRows::Rows), on_progress);
}

}  // namespace stepsim

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
std::function<ComparedPolicy(const std::string&)> compare_work(Jobs& jobs, KeptRows rows) {
  return [&, rows](const std::string& name) {
    const Job job = jobs.job(name, {});
    ComparedPolicy compared;
    PredictOptions options;
    options.training_effects = true;
    options.rows = rows;
    options.on_planned = [&](double seconds) { compared.planning_seconds = seconds; };
    compared.prediction = predict(job, options);
    if (compared.prediction.shapes) {
      compared.cure = cheapest_cure(job, compared.prediction);
    }
    return compared;
  };
}

}  // namespace

std::vector<ComparedPolicy> compare_policies(Jobs& jobs,
                                             KeptRows rows,
                                             PointRunner& runner,
                                             const ProgressCallback& on_progress) {
  return runner.evaluate(policy_names(jobs.base()), compare_work(jobs, rows), on_progress);
}

std::size_t keep_compared(Jobs& jobs, PointRunner& runner, const ProgressCallback& on_progress) {
  return runner.keep(policy_names(jobs.base()), compare_work(jobs, KeptRows::Rows), on_progress);
}

}  // namespace stepsim

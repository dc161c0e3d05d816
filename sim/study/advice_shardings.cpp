#include <utility>

#include "costmodel/base/input_error.h"
#include "costmodel/records/profile.h"
#include "sim/predict/predict.h"
#include "sim/predict/prediction.h"
#include "sim/study/advice.h"

namespace stepsim {
namespace {

using Way = std::pair<const char*, std::vector<Setting>>;

std::vector<Way> other_ways() {
  const std::string reshard = "parallel.reshard_after_forward";
  const std::string kept = "parallel.kept_units";
  return {{"parameters kept", {{reshard, "\"false\""}, {kept, "\"\""}}},
          {"root freed, too", {{reshard, "\"true\""}, {kept, "\"\""}}},
          {"usual", {{reshard, "\"default\""}, {kept, "\"\""}}},
          {"ddp", {{"parallel", "ddp"}}}};
}

/// Whether another way is the scenario's own.
bool is_own(const Jobs& jobs, const std::vector<Setting>& settings) {
  const Scenario other = jobs.scenario(settings);
  return other.parallel == jobs.base().parallel &&
         other.parallel_values.printed() == jobs.base().parallel_values.printed();
}

}  // namespace

std::vector<ShardingStep> sharding_steps(Jobs& jobs,
                                         const std::string& policy,
                                         const ProgressCallback& on_progress) {
  const Scenario& scenario = jobs.base();
  const auto profile = jobs.profile(scenario);
  if (scenario.parallel->name() != "fsdp2" ||
      (profile->recorded && profile->recorded->whole_steps)) {
    return {};
  }
  PredictOptions options;
  options.paired_draws = true;
  const Prediction now = predict(jobs.job(policy, {}), options);
  std::vector<ShardingStep> steps = {{"as recorded",
                                      {},
                                      now.summary.step_time_ms.mean,
                                      now.largest_memory_mib,
                                      !now.out_of_memory,
                                      {},
                                      {}}};
  double done = 1;
  const std::vector<Way> ways = other_ways();
  for (const auto& [name, settings] : ways) {
    if (on_progress) {
      on_progress(done++ / static_cast<double>(ways.size() + 1));
    }
    ShardingStep step;
    step.name = name;
    step.settings = settings;
    try {
      if (is_own(jobs, settings)) {
        continue;
      }
      const Prediction other = predict(jobs.job(policy, settings), options);
      step.step_ms = other.summary.step_time_ms.mean;
      step.memory_mib = other.largest_memory_mib;
      step.fits = !other.out_of_memory;
      step.gain = paired_gain(other, now);
    } catch (const InputError& error) {
      step.not_priced = error.what();
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

const ShardingStep& best_sharding(const std::vector<ShardingStep>& steps) {
  const ShardingStep* best = &steps.front();
  for (const ShardingStep& step : steps) {
    const bool counts = step.not_priced.empty() && step.fits && step.gain.is_certain();
    best = counts && step.step_ms < best->step_ms ? &step : best;
  }
  return *best;
}

}  // namespace stepsim

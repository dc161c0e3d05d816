#include "sim/predict/step_picture.h"

#include <algorithm>
#include <utility>

#include "costmodel/base/mapped.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/metrics.h"

namespace stepsim {

bool has_bucket_cap(const Scenario& scenario) {
  const BucketRule rule = scenario.ddp.bucket_rule;
  return scenario.ddp.bucket_caps.empty() &&
         (rule == BucketRule::PyTorch || rule == BucketRule::BeforeCap);
}

bool is_bucketed_by_cap(const Scenario& scenario) {
  return has_bucket_cap(scenario) &&
         scenario.parallel->facts(parallel_job(scenario)).fixed_units.empty();
}

int median_step(const Prediction& prediction, int warmup_steps) {
  const int first = std::max(warmup_steps, 1);
  std::vector<std::pair<double, int>> times =
      mapped(step_times(prediction.steps, first),
             [](const auto& step) { return std::pair(step.second, step.first); });
  if (times.empty()) {
    return 0;
  }
  std::ranges::sort(times);
  return times[(times.size() - 1) / 2].second;
}

StepPicture step_picture(const Scenario& scenario, const Prediction& prediction, int step) {
  StepPicture picture;
  picture.step = step;
  picture.timeline = prediction.timelines.front();
  for (const RankStepResult& row : prediction.steps) {
    if (row.step == step) {
      picture.ranks.push_back(row);
    }
  }
  const BucketLists lists = bucket_lists(scenario);
  const auto parameters = bucket_parameters(scenario.model);
  for (const Bucket& bucket : step == 0 ? lists.initial : lists.rebuilt) {
    picture.buckets.push_back(
        {bucket_bytes(bucket, parameters), static_cast<std::int64_t>(bucket.parameters.size())});
  }
  if (is_bucketed_by_cap(scenario)) {
    picture.bucket_cap = scenario.ddp.bucket_cap;
  }
  picture.has_units = !scenario.parallel->units_sweep().empty();
  return picture;
}

}  // namespace stepsim

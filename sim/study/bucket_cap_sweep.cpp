#include "sim/study/bucket_cap_sweep.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "sim/predict/step_cost.h"

namespace stepsim {

namespace {

bool cap_matters(const Scenario& scenario, const Profile& profile) {
  return is_bucketed_by_cap(scenario) && scenario.ranks > 1 &&
         !(prices_recorded_model(scenario, profile) && profile.recorded->whole_steps);
}

/// Returns the powers of two but for the scenario's own cap.
std::vector<std::int64_t> other_caps(std::int64_t own) {
  constexpr std::int64_t kSmallest = std::int64_t{1} << 20;
  constexpr std::int64_t kLargest = std::int64_t{2} << 30;
  std::vector<std::int64_t> caps;
  for (std::int64_t cap = kSmallest; cap <= kLargest; cap *= 2) {
    caps.push_back(cap);
  }
  std::erase(caps, own);
  return caps;
}

}  // namespace

std::vector<Setting> default_cap_settings(const Scenario& scenario) {
  std::vector<Setting> settings = {{"ddp.bucket_cap", Bytes(kDefaultBucketCapBytes)}};
  if (!scenario.ddp.first_bucket_cap_stated && scenario.ddp.bucket_rule == BucketRule::PyTorch) {
    settings.emplace_back("ddp.first_bucket_cap", Bytes(kDefaultFirstBucketBytes));
  }
  return settings;
}

std::vector<CapPoint> bucket_cap_sweep(Jobs& jobs, const SweepOptions& options) {
  const Scenario& scenario = jobs.base();
  const Bytes own = scenario.ddp.bucket_cap;
  std::vector<CapPoint> points = {{own, true, sweep(jobs, {}, options).front()}};
  if (!cap_matters(scenario, *jobs.profile(scenario))) {
    return points;
  }
  const std::vector<std::int64_t> caps = other_caps(own.value());
  SweepAxis axis{"ddp.bucket_cap", {}};
  for (const std::int64_t cap : caps) {
    axis.values.emplace_back(axis.key, Bytes(cap));
  }
  SweepOptions of_caps = options;
  of_caps.skips_unpriced = true;
  std::vector<SweepPoint> swept = sweep(jobs, {axis}, of_caps);
  for (std::size_t i = 0; i < caps.size(); ++i) {
    points.push_back({Bytes(caps[i]), false, std::move(swept[i])});
  }
  if (own.value() != kDefaultBucketCapBytes) {
    of_caps.settings = default_cap_settings(scenario);
    points.push_back({Bytes(kDefaultBucketCapBytes), false, sweep(jobs, {}, of_caps).front()});
  }
  std::ranges::sort(points, {}, &CapPoint::cap);
  return points;
}

}  // namespace stepsim

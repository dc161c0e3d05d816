#include "sim/predict/run/jobs.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "costmodel/base/memory_limit.h"
#include "sim/predict/scenario_profile.h"
#include "sim/scenario/key_table.h"

namespace stepsim {
namespace {

/// Memory for stages that jobs to come may share.
double kept_bytes() {
  constexpr double kMost = 256e6;
  constexpr double kShare = 0.1;  // Of what the program may take.
  const std::optional<Bytes> limit = memory_limit();
  return limit ? std::min(kMost, kShare * static_cast<double>(limit->value())) : kMost;
}

/// What a plan and its prices take, in bytes, about.
double bytes_of(const PlannedRun& planned) {
  constexpr double kOfBatch = 1000;  // With the prices of its shape.
  constexpr double kOfSample = 24;   // A length, its place in an epoch, and in a batch.
  return kOfBatch * static_cast<double>(planned.different.size()) +
         kOfSample * static_cast<double>(planned.data->lengths.size()) +
         static_cast<double>(sizeof(std::uint32_t) * planned.batches.size());
}

/// The settings that a stage depends on, as a text.
std::string settings_until(Stage stage, const std::vector<Setting>& settings) {
  std::string text;
  for (const Setting& setting : settings) {
    if (first_stage_of(setting.key()) <= stage) {
      text += setting.text() + "\n";
    }
  }
  return text;
}

}  // namespace

Jobs::Jobs(Scenario scenario, std::string option)
    : scenario_(std::make_shared<const Scenario>(std::move(scenario))),
      option_(std::move(option)),
      most_bytes_(kept_bytes()) {}

Scenario Jobs::scenario(const std::vector<Setting>& settings) const {
  return settings.empty() ? *scenario_ : with_settings(*scenario_, {settings, option_});
}

std::shared_ptr<const Profile> Jobs::profile(const Scenario& scenario) {
  return scenario_profile(scenario, [&](const std::string& path) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const Profile>& known = profiles_[path];
    if (known == nullptr) {
      known = std::make_shared<const Profile>(read_profile(path));
    }
    return known;
  });
}

Job Jobs::job(const std::string& policy, const std::vector<Setting>& settings) {
  const std::shared_ptr<const Scenario> changed =
      settings.empty() ? scenario_ : std::make_shared<const Scenario>(scenario(settings));
  const BatchingPolicy& chosen = find_policy(*changed, policy);
  RunStages shared = stages(chosen, settings);
  return {changed,
          std::shared_ptr<const BatchingPolicy>(changed, &chosen),
          profile(*changed),
          std::move(shared)};
}

RunStages Jobs::stages(const BatchingPolicy& policy, const std::vector<Setting>& settings) {
  const std::string key = policy.name() + "\n" + settings_until(Stage::Planned, settings);
  const std::lock_guard lock(mutex_);
  const auto known = place_of_plan_.find(key);
  if (known == place_of_plan_.end()) {
    const RunStages made;
    plans_.push_front({key, formed(policy, settings), made.planned, {}});
    place_of_plan_[key] = plans_.begin();
    forget_oldest();
  } else {
    plans_.splice(plans_.begin(), plans_, known->second);
  }
  Planned& plan = plans_.front();
  RunStages stages;
  stages.lengths = lengths_;
  stages.formed = plan.formed->data;
  stages.effects = plan.formed->effects;
  stages.planned = plan.planned;
  stages.priced =
      plan.priced.try_emplace(settings_until(Stage::Priced, settings), stages.priced).first->second;
  return stages;
}

std::shared_ptr<Jobs::Formed> Jobs::formed(const BatchingPolicy& policy,
                                           const std::vector<Setting>& settings) {
  // What a policy that plans by time knows of prices may change with any setting of a plan.
  const bool by_time = policy.step_cost_use() != StepCostUse::Never;
  std::vector<std::weak_ptr<Formed>>& known =
      formed_[policy.name() + "\n" +
              settings_until(by_time ? Stage::Planned : Stage::Formed, settings)];
  for (const std::weak_ptr<Formed>& one : known) {
    if (std::shared_ptr<Formed> shared = one.lock();
        shared != nullptr && shared->parameters == policy.parameters()) {
      return shared;
    }
  }
  std::erase_if(known, [](const std::weak_ptr<Formed>& one) { return one.expired(); });
  auto made = std::make_shared<Formed>();
  // A share of a global batch depends on the number of micro-batches.
  made->parameters = policy.parameters();
  known.push_back(made);
  return made;
}

void Jobs::forget_oldest() {
  double bytes = 0;
  for (auto plan = plans_.begin(); plan != plans_.end();) {
    const std::shared_ptr<const PlannedRun> planned = plan->planned->made();
    bytes += planned == nullptr ? 0 : bytes_of(*planned);
    if (bytes > most_bytes_) {
      place_of_plan_.erase(plan->key);
      plan = plans_.erase(plan);
    } else {
      ++plan;
    }
  }
}

}  // namespace stepsim

#include "sim/predict/step_cost.h"

#include <algorithm>
#include <map>
#include <memory>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/compute/times_cost_model.h"
#include "costmodel/records/profile_cost_model.h"
#include "sim/predict/scenario_profile.h"

namespace stepsim {
namespace {

/// A model's ops with their prices by shape.
class StepPrices {
 public:
  StepPrices(const Scenario& scenario, const Profile& profile)
      : profile_(profile),
        varlen_(scenario.model.attention == AttentionKind::Varlen),
        costs_(cost_model(scenario, profile_)),
        ops_(step_ops(scenario.model)) {
    if (!costs_->host_is_device()) {
      launch_ = scenario.host.launch ? to_seconds(*scenario.host.launch) : costs_->launch_seconds();
    }
  }

  [[nodiscard]] std::int64_t nanoseconds(BatchShape shape) {
    if (!varlen_) {
      shape.useful_tokens = shape.padded_tokens();
      shape.sum_squares =
          static_cast<double>(shape.useful_tokens) * static_cast<double>(shape.max_length);
    }
    const auto found = known_.find(shape);
    if (found != known_.end()) {
      return found->second;
    }
    double seconds = 0;
    for (const auto* ops : {&ops_.forward, &ops_.backward}) {
      for (const Op& op : *ops) {
        seconds += costs_->op(op, shape).seconds;
      }
    }
    const double launches =
        launch_ * static_cast<double>(ops_.forward.size() + ops_.backward.size());
    return known_[shape] = to_duration(std::max(seconds, launches)).count();
  }

 private:
  Profile profile_;
  bool varlen_;
  std::unique_ptr<CostModel> costs_;
  StepOps ops_;
  double launch_ = 0;
  std::map<BatchShape, std::int64_t> known_;
};

}  // namespace

bool prices_recorded_model(const Scenario& scenario, const Profile& profile) {
  if (scenario.times || !profile.recorded) {
    return false;
  }
  const bool same = same_model(profile.recorded->model, scenario.model);
  if (!same && profile.ops.empty()) {
    throw InputError(fmt::format(
        "profile '{}' was recorded from another model ({}) than the scenario's, and holds no costs "
        "of single ops; record steps of this one",
        printable(profile.name),
        printable(profile.recorded->model.name)));
  }
  return same;
}

std::unique_ptr<CostModel> cost_model(const Scenario& scenario, const Profile& profile) {
  if (!scenario.times) {
    if (prices_recorded_model(scenario, profile)) {
      return std::make_unique<PassCostModel>(*profile.recorded, profile.host_is_device);
    }
    return std::make_unique<ProfileCostModel>(profile);
  }
  return std::make_unique<TimesCostModel>(scenario.model, *scenario.times);
}

StepCost step_cost(const Scenario& scenario, const Profile& profile) {
  const auto prices = std::make_shared<StepPrices>(scenario, profile);
  return [prices](const BatchShape& shape) { return prices->nanoseconds(shape); };
}

StepCost planning_cost(const Scenario& scenario,
                       const BatchingPolicy& policy,
                       const Profile& profile) {
  return policy.step_cost_use() == StepCostUse::Never
             ? StepCost()
             : step_cost(with_attention_of(policy, scenario), profile);
}

StepCost planning_cost(const Scenario& scenario, const BatchingPolicy& policy) {
  const bool known = scenario.times || !scenario.profile.empty();
  const StepCostUse use = policy.step_cost_use();
  return use == StepCostUse::Always || (use == StepCostUse::IfKnown && known)
             ? planning_cost(scenario, policy, scenario_profile(scenario))
             : StepCost();
}

}  // namespace stepsim

#include "sim/predict/step_cost.h"

#include <map>
#include <memory>

#include "costmodel/base/input_error.h"
#include "costmodel/compute/times_cost_model.h"
#include "costmodel/records/profile_cost_model.h"
#include "sim/engine/time_limit.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_lowering.h"

namespace stepsim {
namespace {

/// The prices of the passes by shape. It holds all that it refers to.
class PassPrices {
 public:
  PassPrices(const Scenario& scenario, const Profile& profile)
      : scenario_(scenario),
        profile_(profile),
        costs_(cost_model(scenario_, profile_)),
        lowering_(scenario_, *costs_) {}

  [[nodiscard]] std::int64_t nanoseconds(BatchShape shape) {
    if (!is_varlen(scenario_)) {
      shape.useful_tokens = shape.padded_tokens();
      shape.sum_squares =
          static_cast<double>(shape.useful_tokens) * static_cast<double>(shape.max_length);
    }
    const auto known = known_.find(shape);
    return known != known_.end()
               ? known->second
               : known_[shape] = bounded_duration(lowering_.pass_seconds(shape)).count();
  }

 private:
  Scenario scenario_;
  Profile profile_;
  std::unique_ptr<CostModel> costs_;
  StepLowering lowering_;
  std::map<BatchShape, std::int64_t> known_;
};

}  // namespace

bool prices_recorded_model(const Scenario& scenario, const Profile& profile) {
  if (scenario.times || !profile.recorded) {
    return false;
  }
  const bool same = same_model(profile.recorded->model, scenario.model);
  if (!same && profile.ops.empty()) {
    throw InputError(
        "profile '{}' was recorded from another model ({}) than the scenario's, and holds no costs "
        "of single ops; record steps of this one",
        printable(profile.name),
        printable(profile.recorded->model.name));
  }
  return same;
}

std::unique_ptr<CostModel> cost_model(const Scenario& scenario, const Profile& profile) {
  if (!scenario.times) {
    if (prices_recorded_model(scenario, profile)) {
      return std::make_unique<PassCostModel>(at_ranks(*profile.recorded, scenario.ranks),
                                             profile.host_is_device);
    }
    return std::make_unique<ProfileCostModel>(profile);
  }
  return std::make_unique<TimesCostModel>(scenario.model, *scenario.times);
}

StepCost step_cost(const Scenario& scenario, const Profile& profile) {
  const auto prices = std::make_shared<PassPrices>(scenario, profile);
  return [prices](const BatchShape& shape) { return prices->nanoseconds(shape); };
}

std::optional<NewShapeCost> new_shape_cost(const Scenario& scenario, const Profile& profile) {
  const std::vector<ShapeCost>& mechanisms =
      scenario.new_shapes.mechanisms ? *scenario.new_shapes.mechanisms : profile.new_shapes;
  NewShapeCost sum;
  bool by_samples = false;
  for (const ShapeCost& cost : mechanisms) {
    const bool of_pairs = cost.key == ShapeKey::SamplesAndLength;
    if ((of_pairs || cost.key == ShapeKey::Length) && cost.compile == CompileMode::None) {
      sum.seconds += cost.seconds();
      by_samples = by_samples || of_pairs;
    }
  }
  sum.key = by_samples ? ShapeKey::SamplesAndLength : ShapeKey::Length;
  return sum.seconds > 0 ? std::optional(sum) : std::nullopt;
}

PlanningCost planning_cost(const Scenario& scenario,
                           const BatchingPolicy& policy,
                           const Profile& profile) {
  if (policy.step_cost_use() == StepCostUse::Never) {
    return {};
  }
  const auto shape = new_shape_cost(scenario, profile);
  return {step_cost(with_attention_of(policy, scenario), profile), shape ? shape->seconds : 0};
}

PlanningCost planning_cost(const Scenario& scenario, const BatchingPolicy& policy) {
  const bool known = scenario.times || (!scenario.profile.empty() && !scenario.model_is_unknown);
  const StepCostUse use = policy.step_cost_use();
  return use == StepCostUse::Always || (use == StepCostUse::IfKnown && known)
             ? planning_cost(scenario, policy, scenario_profile(scenario))
             : PlanningCost();
}

}  // namespace stepsim

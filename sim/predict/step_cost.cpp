#include "sim/predict/step_cost.h"

#include <cmath>
#include <map>
#include <memory>
#include <utility>

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

/// Prices SGD by the AdamW that was measured, in proportion to the elements that each reads and
/// writes, since both wait for memory.
class SgdCosts : public ProfileCostModel {
 public:
  SgdCosts(const Profile& profile, int moved) : ProfileCostModel(profile), moved_(moved) {}

  [[nodiscard]] Cost op(const Op& op, const BatchShape& batch) const override {
    constexpr double kError = 0.2;  // Of another kernel than was measured; an estimate.
    Cost cost = ProfileCostModel::op(op, batch);
    if (op.op_class == OpClass::Optimizer) {
      cost.seconds *= static_cast<double>(moved_) / kAdamwMoves;
      cost.relative_error = std::hypot(cost.relative_error, kError);
      cost.shared_error = std::hypot(cost.shared_error, kError);
    }
    return cost;
  }

 private:
  int moved_;
};

/// A device that is so many times as fast as the costs say. Building a batch is the host's work.
class FasterCosts : public CostModel {
 public:
  FasterCosts(std::unique_ptr<CostModel> own, double speed) : own_(std::move(own)), speed_(speed) {}

  [[nodiscard]] Cost op(const Op& op, const BatchShape& batch) const override {
    Cost cost = own_->op(op, batch);
    if (op.op_class != OpClass::Collate) {
      cost.seconds /= speed_;
    }
    return cost;
  }
  [[nodiscard]] double launch_seconds() const override { return own_->launch_seconds(); }
  [[nodiscard]] double launch_error() const override { return own_->launch_error(); }
  [[nodiscard]] double launched_copies() const override { return own_->launched_copies(); }
  [[nodiscard]] bool host_is_device() const override { return own_->host_is_device(); }

 private:
  std::unique_ptr<CostModel> own_;
  double speed_;
};

/// The costs as they were measured or stated.
std::unique_ptr<CostModel> own_cost_model(const Scenario& scenario, const Profile& profile) {
  if (!scenario.times) {
    if (prices_recorded_model(scenario, profile)) {
      constexpr double kMostExtrapolation = 4.0;
      return std::make_unique<PassCostModel>(
          at_ranks(*profile.recorded, scenario.ranks, scenario.placement.fullest()),
          profile.host_is_device,
          kMostExtrapolation,
          host_floor(scenario, profile));
    }
    if (const std::optional<int> moved = elements_moved_by_sgd(scenario, profile)) {
      return std::make_unique<SgdCosts>(profile, *moved);
    }
    return std::make_unique<ProfileCostModel>(profile);
  }
  return std::make_unique<TimesCostModel>(scenario.model, *scenario.times);
}

}  // namespace

std::optional<HostFloor> host_floor(const Scenario& scenario, const Profile& profile) {
  if (scenario.host.launch || !prices_recorded_model(scenario, profile)) {
    return std::nullopt;
  }
  auto floor = host_floor(at_ranks(*profile.recorded, scenario.ranks, scenario.placement.fullest()),
                          profile.host_is_device);
  if (floor) {
    floor->speed = scenario.compute_speed;
  }
  return floor;
}

std::optional<int> elements_moved_by_sgd(const Scenario& scenario, const Profile& profile) {
  if (scenario.optimizer != OptimizerKind::Sgd || scenario.times ||
      prices_recorded_model(scenario, profile)) {
    return std::nullopt;
  }
  // Parameter and gradient in, parameter out; with momentum its buffer in and out.
  return scenario.optimizer_bytes_per_parameter > 0 ? 5 : 3;
}

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
  std::unique_ptr<CostModel> own = own_cost_model(scenario, profile);
  return scenario.compute_speed == 1
             ? std::move(own)
             : std::make_unique<FasterCosts>(std::move(own), scenario.compute_speed);
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
  const StepCostUse use = policy.step_cost_use();
  const bool times_of_any_batch = scenario.times && scenario.times->tokens == 0;
  if (use == StepCostUse::Always && times_of_any_batch) {
    throw InputError(
        SourcePlace{scenario.path},
        "policy '{}' plans by predicted time, and [times] are the same for every batch; "
        "say in times.tokens how many tokens they are of",
        printable(policy.name()));
  }
  if (use == StepCostUse::Never || times_of_any_batch) {
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

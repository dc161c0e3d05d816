#include "sim/predict/run/planned_job.h"

#include <utility>

#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

/// With the interference and the unequal ranks of the profile, unless the scenario states its own.
Scenario with_machine_of(const Profile& profile, Scenario scenario) {
  scenario.slow_ranks = slow_ranks(scenario, profile);
  if (profile.interference && !scenario.interference_given) {
    scenario.interference = profile.interference->value;
  }
  return scenario;
}

/// The first stage that a counterfactual changes.
Stage first_changed(Change change) {
  switch (change) {
    case Change::NoNewShapes:
      return Stage::Formed;  // Policies may plan by what new shapes cost.
    case Change::NoLaunches:
      return Stage::Priced;  // Recorded passes have a floor of launches.
    case Change::OneBucket:
    case Change::NoUnitHost:
      return Stage::Reduced;
    case Change::NoInterference:
    case Change::EqualRanks:
    case Change::NoData:
    case Change::FreeCommunication:
    case Change::Balanced:
    case Change::MedianRank:
      break;
  }
  return Stage::Played;
}

/// The scenario of a counterfactual run. The other changes act on what the scenario makes.
Scenario changed(Scenario scenario, const std::optional<Counterfactual>& counterfactual) {
  if (!counterfactual) {
    return scenario;
  }
  switch (counterfactual->change) {
    case Change::NoInterference:
      scenario.interference = {};
      break;
    case Change::OneBucket:
      scenario.ddp.bucket_rule = BucketRule::Single;
      break;
    case Change::EqualRanks:
      scenario.slow_ranks.clear();
      scenario.loader.delays.clear();
      break;
    case Change::NoNewShapes:
      scenario.new_shapes.mechanisms.emplace();
      break;
    case Change::NoData:
      scenario.loader = {};
      break;
    case Change::NoUnitHost:
      for (auto* time : {&scenario.host.unit_forward,
                         &scenario.host.unit_forward_tensor,
                         &scenario.host.unit_backward,
                         &scenario.host.unit_backward_tensor,
                         &scenario.host.sharded_tensor}) {
        *time = Duration::zero();
      }
      break;
    case Change::NoLaunches:
      scenario.host.launch = Duration::zero();
      scenario.host.enqueue = Duration::zero();
      scenario.host.hook = Duration::zero();
      scenario.host.python_hook = Duration::zero();
      scenario.host.traversal_per_op = Duration::zero();
      break;
    case Change::FreeCommunication:
    case Change::Balanced:
    case Change::MedianRank:
      break;
  }
  return scenario;
}

}  // namespace

PlannedJob::PlannedJob(const Job& job, std::optional<Counterfactual> counterfactual)
    : job_(counterfactual ? job.without(first_changed(counterfactual->change)) : job),
      counterfactual_(counterfactual),
      scenario_(changed(with_machine_of(profile(), with_attention_of(policy(), job_.scenario())),
                        counterfactual)),
      planned_(job_.stages().planned->get([&] {
        const RunStages& stages = job_.stages();
        const PlanningCost cost = planning_cost(scenario_, policy(), profile());
        return std::make_shared<const PlannedRun>(plan_run(
            scenario_, policy(), cost, *stages.lengths, stages.epoch(scenario_, policy(), cost)));
      })) {}

TrainingEffects PlannedJob::training_effects() const {
  return *job_.stages().effects->get([&] {
    return std::make_shared<const TrainingEffects>(
        first_epoch_effects(scenario_, policy(), *planned_->data));
  });
}

}  // namespace stepsim

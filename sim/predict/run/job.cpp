#include "sim/predict/run/job.h"

#include <utility>

namespace stepsim {

RunStages RunStages::before(Stage first) const {
  RunStages stages;
  stages.lengths = lengths;
  if (first > Stage::Formed) {
    stages.formed = formed;
    stages.effects = effects;
  }
  if (first > Stage::Planned) {
    stages.planned = planned;
  }
  if (first > Stage::Priced) {
    stages.priced = priced;
  }
  return stages;
}

std::shared_ptr<const PlannedData> RunStages::epoch(const Scenario& scenario,
                                                    const BatchingPolicy& policy,
                                                    const PlanningCost& cost) const {
  return formed->get([&] {
    return std::make_shared<const PlannedData>(plan_data(scenario, policy, cost, *lengths));
  });
}

Job::Job(const Scenario& scenario, const BatchingPolicy& policy, const Profile& profile)
    : Job(std::make_shared<const Scenario>(scenario),
          std::make_shared<const BatchingPolicy>(policy),
          std::make_shared<const Profile>(profile)) {}

Job::Job(std::shared_ptr<const Scenario> scenario,
         std::shared_ptr<const BatchingPolicy> policy,
         std::shared_ptr<const Profile> profile,
         RunStages stages)
    : scenario_(std::move(scenario)),
      policy_(std::move(policy)),
      profile_(std::move(profile)),
      stages_(std::move(stages)) {}

Job Job::without(Stage first) const {
  return {scenario_, policy_, profile_, stages_.before(first)};
}

Job Job::padded(std::int64_t pad_to_multiple_of, std::vector<std::int64_t> pad_to_lengths) const {
  RunStages same_epoch;
  same_epoch.lengths = stages_.lengths;
  same_epoch.formed = stages_.formed;
  return {scenario_,
          std::make_shared<const BatchingPolicy>(
              policy_->with_padding(pad_to_multiple_of, std::move(pad_to_lengths))),
          profile_,
          std::move(same_epoch)};
}

}  // namespace stepsim

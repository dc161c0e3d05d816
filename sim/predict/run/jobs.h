#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "costmodel/records/profile.h"
#include "sim/predict/run/job.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The jobs of one study: a scenario under settings of some keys. Each profile is read once. Jobs
/// whose settings differ only in what a later stage reads (first_stage_of()) share the stages
/// before it, as long as these fit into some memory: the oldest ones go first. An epoch is shared
/// where the policy's parameters are the same, too, and by none that plans by time where a plan
/// changes.
///
/// All members may be called from several threads at once.
class Jobs {
 public:
  /// `option`: what gives the settings, for messages: "--over".
  explicit Jobs(Scenario scenario, std::string option = "--set");

  /// The scenario as it stands.
  [[nodiscard]] const Scenario& base() const { return *scenario_; }
  /// The scenario under settings. Raises InputError as parse_scenario().
  [[nodiscard]] Scenario scenario(const std::vector<Setting>& settings) const;
  /// scenario_profile() of such a scenario.
  [[nodiscard]] std::shared_ptr<const Profile> profile(const Scenario& scenario);
  /// The job of a policy under settings; an empty name is the first policy. Raises InputError as
  /// parse_scenario(), find_policy() and scenario_profile().
  [[nodiscard]] Job job(const std::string& policy, const std::vector<Setting>& settings);

 private:
  /// What jobs with the same batches of an epoch have.
  struct Formed {
    PolicyParameters parameters;
    std::shared_ptr<MadeOnce<PlannedData>> data = std::make_shared<MadeOnce<PlannedData>>();
    std::shared_ptr<MadeOnce<TrainingEffects>> effects =
        std::make_shared<MadeOnce<TrainingEffects>>();
  };
  /// Jobs that have one plan.
  struct Planned {
    std::string key;
    std::shared_ptr<Formed> formed;
    std::shared_ptr<MadeOnce<PlannedRun>> planned;
    std::map<std::string, std::shared_ptr<MadeOnce<PricedBatches>>> priced;
  };

  [[nodiscard]] RunStages stages(const BatchingPolicy& policy,
                                 const std::vector<Setting>& settings);
  [[nodiscard]] std::shared_ptr<Formed> formed(const BatchingPolicy& policy,
                                               const std::vector<Setting>& settings);
  void forget_oldest();

  std::shared_ptr<const Scenario> scenario_;
  std::shared_ptr<KnownLengths> lengths_ = std::make_shared<KnownLengths>();
  std::string option_;
  double most_bytes_;  ///< That the stages take.
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Profile>> profiles_;     ///< By path.
  std::list<Planned> plans_;                                           ///< The latest one first.
  std::map<std::string, std::list<Planned>::iterator> place_of_plan_;  ///< [Planned::key]
  /// By the policy and the settings that its batches depend on, while a plan of them is kept.
  std::map<std::string, std::vector<std::weak_ptr<Formed>>> formed_;
};

}  // namespace stepsim

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "costmodel/records/profile.h"
#include "sim/batching/policy.h"
#include "sim/batching/training_effects.h"
#include "sim/predict/run/planned_run.h"
#include "sim/predict/run/priced_batches.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/stage.h"

namespace stepsim {

/// A value that is made once, by whoever needs it first, and kept.
template <typename Value>
class MadeOnce {
 public:
  /// Threads that come while it is made wait. Where `make` throws, the next one tries again.
  [[nodiscard]] std::shared_ptr<const Value> get(
      const std::function<std::shared_ptr<const Value>()>& make) {
    const std::lock_guard lock(mutex_);
    if (value_ == nullptr) {
      value_ = make();
    }
    return value_;
  }
  /// The value if it is there; null while nobody has made it.
  [[nodiscard]] std::shared_ptr<const Value> made() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    return lock.owns_lock() ? value_ : nullptr;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const Value> value_;
};

/// The stages of a run that others may share.
struct RunStages {
  std::shared_ptr<KnownLengths> lengths = std::make_shared<KnownLengths>();
  std::shared_ptr<MadeOnce<PlannedData>> formed = std::make_shared<MadeOnce<PlannedData>>();
  /// What the epoch does to the training.
  std::shared_ptr<MadeOnce<TrainingEffects>> effects =
      std::make_shared<MadeOnce<TrainingEffects>>();
  std::shared_ptr<MadeOnce<PlannedRun>> planned = std::make_shared<MadeOnce<PlannedRun>>();
  std::shared_ptr<MadeOnce<PricedBatches>> priced = std::make_shared<MadeOnce<PricedBatches>>();

  /// The stages that are left as they are where `first` is the first one that changes.
  [[nodiscard]] RunStages before(Stage first) const;
  /// The first stage, planned where nobody has. Takes and raises what plan_data() does.
  [[nodiscard]] std::shared_ptr<const PlannedData> epoch(const Scenario& scenario,
                                                         const BatchingPolicy& policy,
                                                         const PlanningCost& cost) const;
};

/// What is predicted: one policy of a scenario on a machine. Jobs are values; those that differ
/// only in what a later stage reads share the earlier stages of their runs.
class Job {
 public:
  Job(const Scenario& scenario, const BatchingPolicy& policy, const Profile& profile);
  /// `policy`: one of the scenario's, or a changed one.
  Job(std::shared_ptr<const Scenario> scenario,
      std::shared_ptr<const BatchingPolicy> policy,
      std::shared_ptr<const Profile> profile,
      RunStages stages = {});

  [[nodiscard]] const Scenario& scenario() const { return *scenario_; }
  [[nodiscard]] const BatchingPolicy& policy() const { return *policy_; }
  [[nodiscard]] const std::shared_ptr<const Profile>& profile() const { return profile_; }
  [[nodiscard]] const RunStages& stages() const { return stages_; }
  /// Returns the same job without the stages from `first` on, which are to be made anew.
  [[nodiscard]] Job without(Stage first) const;
  /// Returns a job with the same batches, padded in another way. Raises InputError as
  /// BatchingPolicy::with_padding().
  [[nodiscard]] Job padded(std::int64_t pad_to_multiple_of,
                           std::vector<std::int64_t> pad_to_lengths) const;

 private:
  std::shared_ptr<const Scenario> scenario_;
  std::shared_ptr<const BatchingPolicy> policy_;
  std::shared_ptr<const Profile> profile_;
  RunStages stages_;
};

}  // namespace stepsim

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "sim/predict/counterfactual.h"
#include "sim/predict/run/job.h"
#include "sim/predict/run/reduced_step.h"
#include "sim/predict/run/run_loads.h"

namespace stepsim {

/// A job that is planned, priced and reduced, ready to be played: all that stays the same from one
/// noise draw to the next.
class Run {
 public:
  /// Raises InputError: a cost that the profile lacks or refuses; see plan_steps().
  explicit Run(const Job& job, std::optional<Counterfactual> counterfactual = {});
  Run(const Scenario& scenario, const BatchingPolicy& policy, const Profile& profile)
      : Run(Job(scenario, policy, profile)) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// The job's scenario as it runs: with the policy's attention, the machine's interference and
  /// unequal ranks, and what is different in a counterfactual.
  [[nodiscard]] const Scenario& scenario() const { return scenario_; }
  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] const std::optional<Counterfactual>& counterfactual() const {
    return counterfactual_;
  }
  [[nodiscard]] const Profile& profile() const { return *job_.profile(); }
  [[nodiscard]] const BatchingPolicy& policy() const { return job_.policy(); }
  [[nodiscard]] const PlannedRun& planned() const { return *planned_; }
  [[nodiscard]] const PricedBatches& priced() const { return *priced_; }
  [[nodiscard]] const ReducedStep& reduced() const { return reduced_; }
  [[nodiscard]] ReducedStep& reduced() { return reduced_; }
  [[nodiscard]] const RunLoads& loads() const { return loads_; }
  /// The prices of the step's work.
  [[nodiscard]] const StepPricer& pricer() const { return reduced_.pricer(); }
  [[nodiscard]] StepPricer& pricer() { return reduced_.pricer(); }

  /// What the first epoch does to the training.
  [[nodiscard]] TrainingEffects training_effects() const;

  /// The number of micro-batches of all steps and ranks.
  [[nodiscard]] std::size_t batches() const { return planned_->batches.size(); }
  /// One of them, numbered by step, then rank, then micro-batch.
  [[nodiscard]] const RunBatch& batch(std::size_t number) const { return planned_->batch(number); }
  [[nodiscard]] const PricedBatch& priced_batch(std::size_t number) const {
    return priced_->prices()[batch(number).price];
  }
  /// Whether the profile's interference holds, since the scenario states none.
  [[nodiscard]] bool takes_measured_interference() const {
    return profile().interference && !scenario_.interference_given &&
           scenario_.interference.active();
  }
  [[nodiscard]] bool differs_by(Change change) const {
    return counterfactual_ && counterfactual_->change == change;
  }

 private:
  Job job_;
  std::optional<Counterfactual> counterfactual_;
  Scenario scenario_;
  std::shared_ptr<const PlannedRun> planned_;
  std::shared_ptr<const PricedBatches> priced_;
  ReducedStep reduced_;
  RunLoads loads_;
};

}  // namespace stepsim

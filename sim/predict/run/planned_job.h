#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "sim/predict/counterfactual.h"
#include "sim/predict/run/job.h"

namespace stepsim {

/// A job with its batches, without any price.
class PlannedJob {
 public:
  /// Raises InputError: see plan_steps().
  explicit PlannedJob(const Job& job, std::optional<Counterfactual> counterfactual = {});

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
  /// The number of micro-batches of all steps and ranks.
  [[nodiscard]] std::size_t batches() const { return planned_->batches.size(); }
  /// One of them, numbered by step, then rank, then micro-batch.
  [[nodiscard]] const RunBatch& batch(std::size_t number) const { return planned_->batch(number); }

  /// What the first epoch does to the training.
  [[nodiscard]] TrainingEffects training_effects() const;

 private:
  Job job_;
  std::optional<Counterfactual> counterfactual_;
  Scenario scenario_;
  std::shared_ptr<const PlannedRun> planned_;
};

}  // namespace stepsim

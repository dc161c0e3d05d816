#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "sim/predict/run/planned_job.h"
#include "sim/predict/run/reduced_step.h"
#include "sim/predict/run/run_loads.h"

namespace stepsim {

/// A job that is planned, priced and reduced, ready to be played: all that stays the same from one
/// noise draw to the next.
class Run : public PlannedJob {
 public:
  /// Raises InputError: a cost that the profile lacks or refuses; see plan_steps().
  explicit Run(const Job& job, std::optional<Counterfactual> counterfactual = {});
  Run(const Scenario& scenario, const BatchingPolicy& policy, const Profile& profile)
      : Run(Job(scenario, policy, profile)) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  [[nodiscard]] const PricedBatches& priced() const { return *priced_; }
  [[nodiscard]] const ReducedStep& reduced() const { return reduced_; }
  [[nodiscard]] ReducedStep& reduced() { return reduced_; }
  [[nodiscard]] const RunLoads& loads() const { return loads_; }
  /// The prices of the step's work.
  [[nodiscard]] const StepPricer& pricer() const { return reduced_.pricer(); }
  [[nodiscard]] StepPricer& pricer() { return reduced_.pricer(); }

  [[nodiscard]] const PricedBatch& priced_batch(std::size_t number) const {
    return priced_->prices()[batch(number).price];
  }
  /// Whether the profile's interference holds, since the scenario states none.
  [[nodiscard]] bool takes_measured_interference() const {
    return profile().interference && !scenario().interference_given &&
           scenario().interference.active();
  }
  [[nodiscard]] bool differs_by(Change change) const {
    return counterfactual() && counterfactual()->change == change;
  }

 private:
  std::shared_ptr<const PricedBatches> priced_;
  ReducedStep reduced_;
  RunLoads loads_;
};

}  // namespace stepsim

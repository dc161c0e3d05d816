#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/import/step_times/step_time_fit.h"
#include "calibrate/import/step_times/step_time_prior.h"

namespace stepsim {

[[nodiscard]] bool has_several_ranks(const StepTimeRow& row);

/// Returns the text of a placement; those that differ in the order of their nodes count as one.
[[nodiscard]] std::string kind_of(const Placement& placement);

/// The derivative of the step's logarithm by that of all collectives.
[[nodiscard]] double communication_share(const StepTimeFit& fit,
                                         std::span<const double> vector,
                                         std::size_t compute,
                                         const Placement& placement);

/// The fit of one table in one form, with given noise. Table and job must outlive it.
class StepTimeFitter {
 public:
  StepTimeFitter(const StepTimeTable& table, const StepTimeJob& job, StepTimeForm form);

  /// Takes the links of another job for known.
  void know(const FittedLinks& links);

  /// `left_out`: the kind of placement whose rows do not count; empty: all count.
  [[nodiscard]] StepTimeFit fit(double compute_noise,
                                double run_noise,
                                const std::string& left_out = {}) const;

 private:
  /// A row with several ranks, and how many standard deviations a unit of its residuals is.
  struct FittedRow {
    const StepTimeRow* row = nullptr;
    std::size_t compute = 0;
    double step_scale = 1;
    double compute_scale = 1;  ///< Of the step without its exposed communication.
  };

  void weigh(const StepTimeFit& fit,
             std::span<const double> vector,
             std::vector<FittedRow>& rows) const;

  [[nodiscard]] std::vector<double> residuals(const StepTimeFit& fit,
                                              std::span<const double> vector,
                                              const std::vector<FittedRow>& rows) const;

  [[nodiscard]] double prior_deviation(std::size_t coefficient) const;

  const StepTimeTable& table_;
  const StepTimeJob& job_;
  StepTimeForm form_;
  std::vector<StepTimePrior> priors_;
  bool links_are_known_ = false;  ///< Another job's are their priors.
};

}  // namespace stepsim

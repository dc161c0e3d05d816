#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/import/step_times/step_time_fit.h"
#include "calibrate/import/step_times/step_time_prior.h"
#include "calibrate/import/step_times/step_time_residuals.h"

namespace stepsim {

[[nodiscard]] bool has_several_ranks(const StepTimeRow& row);

/// Returns the text of a placement; those that differ in the order of their nodes count as one.
[[nodiscard]] std::string kind_of(const Placement& placement);

/// What compute would grow by with each doubling of a node's ranks, if nothing else made the steps
/// of one node longer; 0 without such rows.
[[nodiscard]] double node_growth(const StepTimeTable& table, const StepTimeJob& job);

/// The derivative of the step's logarithm by that of all collectives.
[[nodiscard]] double communication_share(const StepTimeFit& fit,
                                         std::span<const double> vector,
                                         std::size_t compute,
                                         const Placement& placement,
                                         std::int64_t micro_batches = 1);

/// [StepTimeJob::points] communication_share() where several ranks train.
[[nodiscard]] std::vector<double> communication_shares(const StepTimeFit& fit,
                                                       std::span<const double> vector);

/// [StepTimeJob::points] The steps by these coefficients, where several ranks train.
[[nodiscard]] std::vector<StepTimeParts> step_times(const StepTimeFit& fit,
                                                    std::span<const double> vector);

/// The fit of one table in one form, with given noise. Table and job must outlive it.
class StepTimeFitter {
 public:
  /// `growth`: what compute is taken to grow by with each doubling of a node's ranks before
  /// anything is fitted. It decides where the search starts and which speeds are believed.
  StepTimeFitter(const StepTimeTable& table,
                 const StepTimeJob& job,
                 StepTimeForm form,
                 double growth = 0);

  /// Takes the links of another job for known.
  void know(const FittedLinks& links);

  /// Starts where the host takes as long as the shortest step and links are fast: flat steps have
  /// another mode there than the one with slow links. Returns whether there are such steps.
  bool start_from_host();

  /// Takes the links between nodes, of which no row tells anything, for about this fast.
  void expect_between(double bytes_per_s);

  /// Lets steps grow with the job's ranks, and takes the links between nodes for fast enough to be
  /// hidden. Returns what that costs beside what is expected otherwise, as StepTimeFit::cost.
  double expect_growth();

  /// Takes two nodes for as fast as more.
  void expect_one_speed();

  /// `left_out`: the kind of placement whose rows do not count; empty: all count.
  [[nodiscard]] StepTimeFit fit(double compute_noise,
                                double run_noise,
                                const std::string& left_out = {}) const;

 private:
  [[nodiscard]] std::vector<FittedRow> fitted_rows(const std::string& left_out) const;

  void weigh(const StepTimeFit& fit,
             std::span<const double> vector,
             std::vector<FittedRow>& rows) const;

  [[nodiscard]] StepTimeResiduals residuals(const StepTimeFit& fit,
                                            const std::vector<FittedRow>& rows) const;

  /// What is believed of compute that no rank was timed with alone.
  void add_untimed_priors();

  [[nodiscard]] StepTimePrior prior(std::size_t coefficient) const;

  const StepTimeTable* table_;
  const StepTimeJob* job_;
  StepTimeForm form_;
  double growth_;
  double host_start_ = 0;  ///< The logarithm of the host's factor where the search starts.
  double between_ = 0;  ///< Bytes a second between nodes, if rows just hid them; 0: no such rows.
  std::vector<StepTimeBound> bounds_;
  std::vector<StepTimePrior> priors_;
  bool links_are_known_ = false;  ///< Another job's are their priors.
};

}  // namespace stepsim

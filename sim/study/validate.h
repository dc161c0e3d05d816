#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/records/run_record.h"
#include "sim/predict/prediction.h"
#include "sim/study/live_run.h"

namespace stepsim {

/// How many standard errors of a measured mean a difference must exceed to be called real.
inline constexpr double kRealErrors = 2;

/// Predicted against measured, one policy. Milliseconds; errors as fractions of the measured value.
struct PolicyValidation {
  std::string policy;
  bool reference = false;  ///< Runs on data of its own: compared, but never recommended.
  StepTimeSummary predicted;
  double measured_mean = 0;
  double measured_p50 = 0;
  double measured_p95 = 0;
  double error_mean = 0;  ///< (predicted - measured) / measured
  double error_p50 = 0;
  double error_p95 = 0;
  double step_error = 0;  ///< Mean over steps of |predicted - measured|, each step its own.
  double repeatability =
      0;            ///< Standard deviation of the repeats' means / mean; 0 with one repeat.
  int repeats = 0;  ///< Complete passes, of all files together.
  int files = 0;
  /// Standard error of the measured mean / mean (standard_error of sim/study/live_run.h); none with
  /// one pass.
  std::optional<double> standard_error;
  bool covered = false;    ///< The measured mean lies in the predicted 90 % interval.
  double below_p50 = 0;    ///< Share of the measured single steps below the predicted p50.
  double below_p95 = 0;    ///< The same for the p95.
  int measured_steps = 0;  ///< Single steps, all passes.
  std::map<int, double> measured_by_step;  ///< [step] mean over the passes.
  StepParts predicted_parts;
  StepParts measured_parts;
  bool states_wait = true;  ///< Else the wait for collectives is in the backward, of both.
  double predicted_tokens_per_s = 0;  ///< Useful tokens.
  double measured_tokens_per_s = 0;

  /// The smallest error that the live runs can tell from none, relative; none with one pass.
  [[nodiscard]] std::optional<double> resolution() const;
  [[nodiscard]] bool within_repeatability() const;  ///< The error of the mean is below that.
};

/// A part of the step and how much it adds to the error of the mean: (predicted - measured) / the
/// measured step.
struct PartError {
  std::string part;  ///< "data", "forward", "backward", "exposed", "optimizer", "other"
  double error = 0;
};

/// In the order of the step; they sum to the error of the mean. Without "exposed" where the record
/// does not state the wait.
[[nodiscard]] std::vector<PartError> part_errors(const PolicyValidation& policy);

/// The part that adds most to the error of the mean, in its direction.
[[nodiscard]] PartError largest_part_error(const PolicyValidation& policy);

struct Validation {
  std::vector<PolicyValidation> policies;
  double kendall_tau = 1;  ///< Of useful tokens per second; 1 = same order.
  int pairs = 0;           ///< Of policies.
  /// Pairs whose measured difference exceeds kRealErrors of its standard errors.
  int distinguishable_pairs = 0;
  std::optional<double> told_kendall_tau;  ///< Among those; none when there is no such pair.
  std::string recommended;  ///< Predicted best of the policies on the scenario's data.
  std::string truly_best;
  double regret = 0;  ///< How much slower the recommended one is than the truly best.
  /// The smallest regret that the live runs can tell from none; none with one pass.
  std::optional<double> regret_resolution;
  double coverage = 0;       ///< Share of policies whose measured mean lies in the interval.
  double below_p50 = 0;      ///< As of the policies, over the steps of all.
  double below_p95 = 0;      ///< The same for the p95.
  double machine_speed = 0;  ///< Sentinel during the run / at calibration; 0 = not measured.
  std::vector<std::string> warnings;

  /// Every error of a mean is within the bound, a fraction.
  [[nodiscard]] bool holds(double bound) const;
};

/// Records of one policy in several files are joined. Raises InputError: no policy in common, a
/// record that ran other batches than the plan says, one live run given twice.
[[nodiscard]] Validation validate(const std::vector<Prediction>& predictions,
                                  const std::vector<std::string>& reference_policies,
                                  const std::vector<RunRecord>& records,
                                  int warmup_steps,
                                  double calibration_sentinel_seconds);

/// Kendall's tau-a of two lists of equal length; 1 when fewer than two pairs.
[[nodiscard]] double kendall_tau(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace stepsim

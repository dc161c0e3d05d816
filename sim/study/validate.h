#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/records/recording_span.h"
#include "costmodel/records/run_record.h"
#include "sim/predict/prediction.h"
#include "sim/study/live_run.h"

namespace stepsim {

/// A difference of measured means counts as real when it exceeds this many standard errors.
inline constexpr double kRealErrors = 2;

/// One policy's prediction against its measurement. Times are milliseconds; errors are fractions of
/// the measured value.
struct PolicyValidation {
  std::string policy;
  bool reference = false;  ///< True: it runs on data of its own and is never recommended.
  StepTimeSummary predicted;
  std::vector<MeanInterval> intervals;  ///< Of the levels that were drawn, as that of `predicted`.
  double measured_mean = 0;
  double measured_p50 = 0;
  double measured_p95 = 0;
  double error_mean = 0;  ///< (predicted - measured) / measured
  double error_p50 = 0;
  double error_p95 = 0;
  double step_error = 0;  ///< Mean over steps of each step's own |predicted - measured|.
  /// Standard deviation of the passes' means over their mean; 0 with one pass.
  double repeatability = 0;
  int repeats = 0;  ///< Complete passes over the plan, in all files together.
  int files = 0;
  /// Standard error of the measured mean over that mean, see sim/study/live_run.h; absent with one
  /// pass.
  std::optional<double> standard_error;
  /// The live runs went on beside the recording of the costs: `predicted` has the interval of the
  /// same hour.
  bool beside_recording = false;
  bool covered = false;    ///< True: the measured mean lies in the predicted 90 % interval.
  double below_p50 = 0;    ///< Share of single measured steps below the predicted p50.
  double below_p95 = 0;    ///< Share of single measured steps below the predicted p95.
  int measured_steps = 0;  ///< Number of single measured steps, over all passes.
  std::map<int, double> measured_by_step;  ///< [step] mean over the passes.
  StepParts predicted_parts;
  StepParts measured_parts;
  bool states_wait = true;  ///< False: in both parts the backward includes the exposed wait.
  double predicted_tokens_per_s = 0;  ///< Useful tokens per second.
  double measured_tokens_per_s = 0;   ///< Useful tokens per second.

  /// Returns the smallest relative error that the live runs can tell from zero; nothing with one
  /// pass.
  [[nodiscard]] std::optional<double> resolution() const;
  /// Tells whether the error of the mean is too small for the live runs to tell it from zero.
  [[nodiscard]] bool within_repeatability() const;
};

/// A part of the step and what it adds to the error of the mean: (predicted - measured) / the
/// measured step.
struct PartError {
  std::string part;  ///< "data", "forward", "backward", "exposed", "optimizer", "other"
  double error = 0;
};

/// Returns the error of each part, in the order of the step. They sum to the error of the mean.
/// "exposed" is missing when the record does not state the wait.
[[nodiscard]] std::vector<PartError> part_errors(const PolicyValidation& policy);

/// Returns the part that adds most to the error of the mean, in that error's direction.
[[nodiscard]] PartError largest_part_error(const PolicyValidation& policy);

/// All policies' predictions against live runs.
struct Validation {
  std::vector<PolicyValidation> policies;
  double kendall_tau = 1;  ///< Compares the order by useful tokens per second; 1: same order.
  int pairs = 0;           ///< Number of pairs of policies.
  /// Number of pairs whose measured difference exceeds kRealErrors of its standard errors.
  int distinguishable_pairs = 0;
  /// Kendall's tau over the distinguishable pairs; absent when there is none.
  std::optional<double> distinguishable_kendall_tau;
  std::string recommended;  ///< The predicted best of the policies on the scenario's own data.
  std::string truly_best;   ///< The measured best of these policies.
  double regret = 0;        ///< How much faster the truly best is than the recommended, less 1.
  /// The smallest regret that the live runs can tell from zero; absent with one pass.
  std::optional<double> regret_resolution;
  double coverage = 0;       ///< Share of policies whose measured mean lies in the interval.
  double below_p50 = 0;      ///< PolicyValidation::below_p50 over the steps of all policies.
  double below_p95 = 0;      ///< PolicyValidation::below_p95 over the steps of all policies.
  double machine_speed = 0;  ///< Sentinel time during the run / at calibration; 0: not measured.
  /// Wall over processor time of the live forwards (sim/study/live_run.h), and of those that the
  /// costs were recorded of; nothing where it is not known.
  std::optional<double> live_slowed;
  std::optional<double> recorded_slowed;
  std::vector<std::string> warnings;

  /// Tells whether every |error of a mean| is within the bound, a fraction.
  [[nodiscard]] bool holds(double bound) const;
};

/// Whether the record's sentinel is the step that the profile's calibration repeated, by the same
/// program and of the same model. Records that do not say whose it is are of profiles' own
/// trainers.
[[nodiscard]] bool has_sentinel_of(const RunRecord& record, const Profile& profile);

/// Compares predictions with live runs. Records of one policy in several files are joined.
/// Raises InputError: predictions and records have no policy in common, a record ran other batches
/// than the plan says, or one live run is given twice. A policy all of whose records ran beside one
/// of `recordings`, which the costs were fitted to, is held against the interval of the same hour.
[[nodiscard]] Validation validate(const std::vector<Prediction>& predictions,
                                  const std::vector<std::string>& reference_policies,
                                  const std::vector<RunRecord>& records,
                                  int warmup_steps,
                                  double calibration_sentinel_seconds,
                                  const std::vector<RecordingSpan>& recordings = {});

/// Returns Kendall's tau-a of two lists of equal length; 1 when they have fewer than two entries.
[[nodiscard]] double kendall_tau(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace stepsim

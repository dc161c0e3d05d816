#pragma once

#include <string>
#include <vector>

#include "costmodel/run_record.h"
#include "sim/prediction.h"

namespace stepsim {

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
      0;  ///< Standard deviation of the repeats' means / mean; 0 with one repeat.
  int repeats = 0;
  bool covered = false;               ///< The measured mean lies in the predicted 90 % interval.
  double predicted_tokens_per_s = 0;  ///< Useful tokens.
  double measured_tokens_per_s = 0;
};

struct Validation {
  std::vector<PolicyValidation> policies;
  double kendall_tau = 1;   ///< Of useful tokens per second; 1 = same order.
  std::string recommended;  ///< Predicted best of the policies on the scenario's data.
  std::string truly_best;
  double regret = 0;         ///< How much slower the recommended one is than the truly best.
  double coverage = 0;       ///< Share of policies whose measured mean lies in the interval.
  double machine_speed = 0;  ///< Sentinel during the run / at calibration; 0 = not measured.
  std::vector<std::string> warnings;
};

/// Raises InputError: no policy in common, a record that ran other batches than the plan says, a
/// policy recorded twice.
[[nodiscard]] Validation validate(const std::vector<Prediction>& predictions,
                                  const std::vector<std::string>& reference_policies,
                                  const std::vector<RunRecord>& records,
                                  int warmup_steps,
                                  double calibration_sentinel_seconds);

/// Kendall's tau-a of two lists of equal length; 1 when fewer than two pairs.
[[nodiscard]] double kendall_tau(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace stepsim

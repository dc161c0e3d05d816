#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/records/run_record.h"

namespace stepsim {

/// The parts of a step in milliseconds, as means over ranks and steady steps. They sum to the step
/// time.
struct StepParts {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double exposed = 0;  ///< Waiting for collectives after the backward.
  double optimizer = 0;
  double other = 0;  ///< The rest of the step: the gaps between the parts.
};

/// What the live runs of one policy measured, in one file or several. It holds the steady steps
/// that all ranks finished, of all complete passes. A pass is complete when no other pass has more
/// such steps.
struct LiveRun {
  std::vector<double> step_ms;                  ///< Every measured step, in milliseconds.
  std::map<int, std::vector<double>> by_step;   ///< [step][pass] milliseconds.
  std::vector<std::vector<double>> pass_means;  ///< [file][pass] milliseconds.
  StepParts parts;
  bool states_wait = true;  ///< False: `parts.backward` includes the wait for collectives.
  std::vector<std::string> warnings;
};

/// Joins the records of one policy. Pass numbers continue from file to file.
/// Raises InputError: there is no step after the warm-up, or one run is given twice.
[[nodiscard]] LiveRun join_live_runs(const std::vector<const RunRecord*>& records,
                                     int warmup_steps);

/// Returns the standard deviation (n - 1) of the passes' means over their mean; 0 with one pass.
[[nodiscard]] double repeatability(const LiveRun& run);

/// Returns the standard error of the mean over the passes, relative to that mean; nothing with one
/// pass. Passes of one file share the state of the machine; with several files the standard error
/// over the files' means is used when it is larger.
[[nodiscard]] std::optional<double> standard_error(const LiveRun& run);

/// Returns wall over processor time of the steady forwards, beyond what sharing cores makes of it,
/// of the rank for which that is least: others may wait in a forward for the first one's buffers.
/// 1 is a machine without other programs. Nothing where no record holds processor times.
///
/// Args:
///     cores: That the ranks of a node share where a record does not say; 0: one each.
[[nodiscard]] std::optional<double> slowed_by_others(const std::vector<RunRecord>& records,
                                                     int warmup_steps,
                                                     double cores);

}  // namespace stepsim

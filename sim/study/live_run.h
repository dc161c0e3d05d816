#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/records/run_record.h"

namespace stepsim {

/// A step by its parts, milliseconds: means over ranks and steady steps. They sum to the step time.
struct StepParts {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double exposed = 0;  ///< Waiting for collectives after the backward.
  double optimizer = 0;
  double other = 0;  ///< The rest of the step: the gaps between the parts.
};

/// What the live runs of one policy measured, in one file or several. Steady steps that all ranks
/// finished, of complete passes: those with as many such steps as the fullest one.
struct LiveRun {
  std::vector<double> step_ms;                  ///< Every measured step.
  std::map<int, std::vector<double>> by_step;   ///< [step][pass] milliseconds.
  std::vector<std::vector<double>> pass_means;  ///< [file][pass] milliseconds.
  StepParts parts;
  bool states_wait = true;  ///< Else the wait for collectives is in `parts.backward`.
  std::vector<std::string> warnings;
};

/// Joins the records of one policy; passes are numbered on from file to file.
/// Raises InputError: no step after the warm-up, the same run twice.
[[nodiscard]] LiveRun join_live_runs(const std::vector<const RunRecord*>& records,
                                     int warmup_steps);

/// Standard deviation (n - 1) of the passes' means over their mean; 0 with one pass.
[[nodiscard]] double repeatability(const LiveRun& run);

/// Standard error of the mean over the passes, relative to it; none with one pass. Passes of one
/// file share the state of the machine, so that with several files the standard error over the
/// files' means is taken where it is larger.
[[nodiscard]] std::optional<double> standard_error(const LiveRun& run);

}  // namespace stepsim

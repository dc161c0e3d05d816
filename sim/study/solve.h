#pragma once

#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "costmodel/base/units.h"
#include "sim/predict/note.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// A scenario key and the range in which to search for its value.
struct SolveRange {
  std::string key;
  double low = 0;
  double high = 0;
  std::string unit;  ///< The unit of both ends, such as "us" or "GB/s"; empty for plain numbers.
};

/// Parses "interference.strength=0..2" or "host.enqueue=0..50 us". A unit behind the second end
/// holds for both.
///
/// Raises InputError: '=' or ".." is missing, an end is not a number, the ends have different
/// units, or the range is empty.
[[nodiscard]] SolveRange parse_solve_range(const std::string& text);

/// Formats a value as `--set key=value` takes it: "0.3", "12.5 us".
[[nodiscard]] std::string value_text(const SolveRange& range, double value);

struct SolveOptions {
  std::string policy;  ///< Empty: the scenario's first policy.
  ProgressCallback on_progress = {};
};

/// The value at which a scenario predicts a measured step time.
struct Solution {
  bool found = false;  ///< False: the measured time is not between the predictions at the ends.
  double value = 0;    ///< The solution, in the unit of the range.
  double step_ms = 0;  ///< StepTimeSummary::mean at `value`.
  double low_ms = 0;   ///< StepTimeSummary::mean at the low end of the range.
  double high_ms = 0;  ///< StepTimeSummary::mean at the high end of the range.
  std::vector<Note> notes;  ///< Of the last prediction: at `value`, or at the high end.
};

/// Bisects until the range has shrunk to 1e-4 of its length, then interpolates. The step time may
/// rise or fall with the value and is assumed to be monotone; if there are several solutions, one
/// of them is found.
///
/// Raises InputError: the scenario refuses a value (the key takes whole numbers, say), or the
/// profile lacks a cost.
[[nodiscard]] Solution solve(const Scenario& scenario,
                             const SolveRange& range,
                             Duration step_time,
                             const SolveOptions& options);

}  // namespace stepsim

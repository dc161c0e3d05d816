#pragma once

#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "costmodel/base/units.h"

namespace stepsim {

/// A scenario key and the range in which its value is looked for.
struct SolveRange {
  std::string key;
  double low = 0;
  double high = 0;
  std::string unit;  ///< As "us" or "GB/s"; empty for plain numbers.
};

/// "interference.strength=0..2", "host.enqueue=0..50 us" (the unit of the second end holds for
/// both).
///
/// Raises InputError: no '=', no "..", ends that are no numbers, two different units, an empty
/// range.
[[nodiscard]] SolveRange parse_solve_range(const std::string& text);

/// A value as `--set key=value` takes it: "0.3", "12.5 us".
[[nodiscard]] std::string value_text(const SolveRange& range, double value);

struct SolveOptions {
  std::string policy;  ///< Empty: the first of the scenario.
  std::vector<std::string> overrides;
  ProgressCallback on_progress = {};
};

/// The value at which a scenario predicts a measured step time.
struct Solution {
  bool found = false;  ///< false: the measured time is not between the predictions at the ends.
  double value = 0;    ///< In the unit of the range.
  double step_ms = 0;  ///< StepTimeSummary::mean at `value`.
  double low_ms = 0;   ///< The same at the ends of the range.
  double high_ms = 0;
};

/// Bisects until the range is 1e-4 of what it was, then interpolates; the step time may rise or
/// fall with the value, and is taken to be monotone. Of several solutions it finds one.
///
/// Raises InputError: a value that the scenario refuses (a key for whole numbers, say), or a cost
/// that the profile lacks.
[[nodiscard]] Solution solve(const std::string& scenario_path,
                             const SolveRange& range,
                             Duration step_time,
                             const SolveOptions& options);

}  // namespace stepsim

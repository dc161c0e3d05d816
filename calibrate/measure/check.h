#pragma once

#include <string>
#include <vector>

#include "calibrate/measure/measure.h"
#include "costmodel/base/progress_callback.h"
#include "costmodel/records/profile.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// The seconds of one class of ops over all checked steps.
struct CheckRow {
  OpClass op_class = OpClass::Gemm;
  double predicted = 0;
  double measured = 0;
  [[nodiscard]] double ratio() const { return measured / predicted; }
};

/// How the machine as it is now compares with its profile.
struct CheckResult {
  std::vector<CheckRow> rows;  ///< By class.
  double predicted_steps = 0;  ///< Seconds, summed over the checked batch shapes.
  double measured_steps = 0;
  double sentinel_seconds = 0;  ///< The sentinel step's time now.
  double profile_sentinel_seconds = 0;
  double tolerance =
      0;  ///< A fraction: 5 %, or twice the noise of the calibration if that is more.
  int points = 0;
  std::string device;  ///< The one that was checked.
  [[nodiscard]] double ratio() const { return measured_steps / predicted_steps; }
  [[nodiscard]] bool fits() const;
};

/// Times the ops of the sentinel and of a few points of the profile's own grid on all its ranks,
/// and compares. Raises InputError when stepcal did not time the profile's ops.
[[nodiscard]] CheckResult check_profile(const Profile& profile,
                                        const BackendFactory& factory,
                                        const ProgressCallback& on_progress = {});

/// Finds the plan that a profile was measured by in its provenance. Raises InputError.
[[nodiscard]] MeasurePlan plan_of_profile(const Profile& profile);

/// Chooses `count` points of the grid to check, spread evenly over it in order of tokens.
[[nodiscard]] std::vector<GridPoint> check_points(const MeasurePlan& plan, std::size_t count);

/// The result as an aligned table with a verdict.
[[nodiscard]] std::string check_report(const Profile& profile,
                                       const CheckResult& result,
                                       const Screen& screen = {});

}  // namespace stepsim

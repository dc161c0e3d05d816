#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/fit/collectives.h"
#include "calibrate/fit/residual_plot.h"
#include "calibrate/samples/samples.h"
#include "costmodel/base/progress_callback.h"
#include "costmodel/records/profile.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// What goes into the profile beside the numbers, and how to fit.
// NOLINTNEXTLINE(bugprone-exception-escape): moving an ordered_json is not marked noexcept.
struct FitOptions {
  std::string name;          ///< The profile's.
  std::string samples_file;  ///< The path that the user gave.
  std::string command;       ///< The command line that fits.
  std::string date;          ///< ISO 8601, UTC.
  bool monotone = false;     ///< Costs of measured sizes never fall when the batch grows.
  /// The profile to start from when the samples are imports. Its tables of the same collective,
  /// ranks and nodes are replaced; everything else is kept.
  std::optional<Profile> base = std::nullopt;
  ProgressCallback on_progress = {};
};

/// A row of the report: all entries of one class and pass. Errors are means over the entries.
struct FitRow {
  OpClass op_class = OpClass::Gemm;
  Pass pass = Pass::Forward;
  bool unmeasured = false;  ///< The entry for sizes that were never measured.
  std::string forms;        ///< "table", "features", or both with their number of entries.
  int entries = 0;
  int points = 0;
  double seconds_lo = 0;  ///< The shortest measured time,
  double seconds_hi = 0;  ///< and the longest.
  FitErrors errors;
};

/// A profile and how it came about.
// NOLINTNEXTLINE(bugprone-exception-escape): moving an ordered_json is not marked noexcept.
struct FitResult {
  Profile profile;
  std::vector<FitRow> rows;
  std::vector<CollectiveFit> collectives;
  int measurements = 0;               ///< Repetitions of steps and collectives.
  std::vector<Residual> residuals;    ///< At every point that an entry was fitted to.
  std::vector<std::string> warnings;  ///< About samples that allow no good fit.
};

/// Fits every op, the entries for sizes never measured, the collectives, the interference and the
/// noise. Raises InputError when the samples hold neither a step nor an import, or steps although
/// there is a base.
[[nodiscard]] FitResult fit_profile(const SampleSet& samples, const FitOptions& options);

/// Fits the noise: `step_jitter` is the robust deviation of single steps from the median of their
/// shape, `drift` the robust deviation of the sentinels over their median.
[[nodiscard]] NoiseProfile fit_noise(const SampleSet& samples);

/// An error for tables, in percent: "12.3"; "> 10 times" for more than that, where a percentage
/// says no more; "-" without one.
[[nodiscard]] std::string error_text(const std::optional<double>& fraction, bool with_sign = false);

/// Writes the result as aligned tables for a terminal: entries by class and pass, collectives,
/// noise.
[[nodiscard]] std::string fit_report(const FitResult& result, const Screen& screen = {});

}  // namespace stepsim

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

/// What is written into the profile beside the numbers.
// NOLINTNEXTLINE(bugprone-exception-escape): moving an ordered_json is not marked noexcept.
struct FitOptions {
  std::string name;          ///< Of the profile.
  std::string samples_file;  ///< As the user named it.
  std::string command;       ///< The command line that fits.
  std::string date;          ///< ISO 8601, UTC.
  bool monotone = false;     ///< Costs of measured sizes never fall when the batch grows.
  /// What the profile starts from, when the samples are imports: its tables of the same collective,
  /// ranks and nodes are replaced, all else is kept.
  std::optional<Profile> base = std::nullopt;
  ProgressCallback on_progress = {};
};

/// All entries of one class and pass, for the report. Errors are means over the entries.
struct FitRow {
  OpClass op_class = OpClass::Gemm;
  Pass pass = Pass::Forward;
  bool general = false;  ///< The class's entry for sizes never measured.
  std::string forms;     ///< "table", "features", or both with their number of entries.
  int entries = 0;
  int points = 0;
  double seconds_lo = 0;  ///< Shortest and longest measured time.
  double seconds_hi = 0;
  FitErrors errors;
};

/// A profile and how it came about.
// NOLINTNEXTLINE(bugprone-exception-escape): moving an ordered_json is not marked noexcept.
struct FitResult {
  Profile profile;
  std::vector<FitRow> rows;
  std::vector<CollectiveFit> collectives;
  int measurements = 0;               ///< Repetitions of steps and collectives.
  std::vector<Residual> residuals;    ///< Of every measured size, at the points it was fitted to.
  std::vector<std::string> warnings;  ///< About samples no good fit can be made from.
};

/// Fits every op, the general entries, the collectives and the noise. Raises InputError: the
/// samples hold neither a step nor an import, or steps beside a base.
[[nodiscard]] FitResult fit_profile(const SampleSet& samples, const FitOptions& options);

/// step_jitter: robust deviation of single steps from the median of their shape; drift: standard
/// deviation of the sentinels over their median.
[[nodiscard]] NoiseProfile fit_noise(const SampleSet& samples);

/// The result as aligned tables for a terminal: entries by class and pass, collectives, noise.
[[nodiscard]] std::string fit_report(const FitResult& result, const Screen& screen = {});

}  // namespace stepsim

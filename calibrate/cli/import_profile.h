#pragma once

#include <optional>
#include <span>
#include <string>

#include "calibrate/cli/options.h"
#include "calibrate/fit/fit.h"
#include "calibrate/import/recorded/recorded_run.h"
#include "calibrate/samples/samples.h"

namespace stepsim {

/// Fits the profile that --profile names to imported samples, on top of --base when that is given,
/// writes it, and prints how well it fits unless the profile goes to standard output. `files` names
/// what was imported.
void write_imported_profile(const OptionParser& parser,
                            const SampleSet& samples,
                            const std::string& files);

/// Fits the same profile and returns it; nothing is written or printed.
[[nodiscard]] FitResult fit_imported(const OptionParser& parser,
                                     const SampleSet& samples,
                                     const std::string& files);

/// The profile of --base; nothing without that option.
[[nodiscard]] std::optional<Profile> read_base(const OptionParser& parser);

/// Makes the profile that --profile names of recorded runs' costs and of `base`, writes it, and
/// prints what was fitted unless the profile goes to standard output.
void write_recorded_profile(const OptionParser& parser,
                            const RecordedCosts& costs,
                            std::span<const RecordedRun> runs,
                            const Profile* base);

}  // namespace stepsim

#pragma once

#include <string>

#include "calibrate/cli/options.h"
#include "calibrate/samples/samples.h"

namespace stepsim {

/// Writes the profile that --profile names from imported samples, upon --base when it is given, and
/// prints how it fits unless it goes to standard output. `files`: what was imported.
void write_imported_profile(const OptionParser& parser,
                            const SampleSet& samples,
                            const std::string& files);

}  // namespace stepsim

#pragma once

#include <string>

#include "calibrate/cli/options.h"
#include "calibrate/samples/samples.h"

namespace stepsim {

/// Fits the profile that --profile names to imported samples, on top of --base when that is given,
/// writes it, and prints how well it fits unless the profile goes to standard output. `files` names
/// what was imported.
void write_imported_profile(const OptionParser& parser,
                            const SampleSet& samples,
                            const std::string& files);

}  // namespace stepsim

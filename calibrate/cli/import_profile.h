#pragma once

#include <string>

#include "calibrate/cli/options.h"
#include "calibrate/import/imported_profile.h"

namespace stepsim {

/// What --profile and --base ask for.
[[nodiscard]] ProfileRequest profile_request(const OptionParser& parser);

/// Writes the profile, and prints what the import says of it unless it goes to standard output.
void write_imported(const std::string& out, const ImportedProfile& imported);

}  // namespace stepsim

#pragma once

#include <string>

#include "calibrate/import/imported_profile.h"
#include "costmodel/terminal/answer.h"

namespace stepsim {

/// Writes the profile to this file, and answers what the import says of it.
[[nodiscard]] Answer profile_answer(const std::string& out, ImportedProfile imported);

}  // namespace stepsim

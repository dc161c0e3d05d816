#pragma once

#include <optional>
#include <string>

#include "tests/source_root.h"

namespace stepsim::test {

/// Path of a file of the reference data (STEPSIM_DATA, else ../shared/data beside the project).
/// When it is absent the calling test is recorded and printed as skipped: return from it.
[[nodiscard]] std::optional<std::string> data_file(const std::string& name);

/// Records a skip with its reason.
void skip(const std::string& reason);

/// An empty folder for this test, removed when the program ends.
[[nodiscard]] std::string fresh_folder();

}  // namespace stepsim::test

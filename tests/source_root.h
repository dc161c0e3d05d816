#pragma once

#include <string>

namespace stepsim::test {

/// The project's root folder.
[[nodiscard]] std::string source_root();

/// The folder of the reference data: STEPSIM_DATA, else ../shared/data beside the project. It need
/// not exist.
[[nodiscard]] std::string data_folder();

}  // namespace stepsim::test

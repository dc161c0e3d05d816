#pragma once

#include <filesystem>
#include <vector>

namespace stepsim {

/// Returns the folder of the file that this code runs from, which is the program or the Python
/// extension, and those above it, the nearest first. What is installed or built with it is found
/// from there. Empty where the system does not tell.
[[nodiscard]] std::vector<std::filesystem::path> own_folders();

}  // namespace stepsim

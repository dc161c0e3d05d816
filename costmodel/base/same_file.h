#pragma once

#include <string>

namespace stepsim {

/// Tells whether two names are of one file, which writing to one would take from the other. Devices
/// and pipes are nothing to lose; files that do not exist yet are told by their names.
[[nodiscard]] bool is_same_file(const std::string& a, const std::string& b);

}  // namespace stepsim

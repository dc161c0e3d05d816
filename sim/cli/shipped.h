#pragma once

#include <string>

namespace stepsim {

/// `path` where it is there; else, of a name like "scenarios/token_skew.toml", the one installed
/// with the program (../share/stepsim beside its folder), so that the names of the documentation
/// work in any folder. A name that is neither stays as it is.
[[nodiscard]] std::string shipped_path(const std::string& path);

}  // namespace stepsim

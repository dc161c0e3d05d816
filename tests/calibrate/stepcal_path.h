#pragma once

#include <string>

namespace stepsim::test {

/// The stepcal program of this build.
[[nodiscard]] std::string stepcal_path();

}  // namespace stepsim::test

#pragma once

#include <string>

namespace stepsim {

/// The processor's name as the system reports it, or "unknown processor".
[[nodiscard]] std::string processor_name();

}  // namespace stepsim

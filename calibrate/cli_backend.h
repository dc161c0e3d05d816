#pragma once

#include "calibrate/measure.h"

namespace stepsim {

/// The CPU backend. Raises EnvironmentFault when the program was built without gloo.
[[nodiscard]] BackendFactory cpu_backend_factory();

}  // namespace stepsim

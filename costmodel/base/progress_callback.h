#pragma once

#include <functional>

namespace stepsim {

/// Called during long work with the share of it that is done, 0 to 1; may be empty.
using ProgressCallback = std::function<void(double share)>;

}  // namespace stepsim

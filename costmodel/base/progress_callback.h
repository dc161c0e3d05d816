#pragma once

#include <functional>

namespace stepsim {

/// A long job calls this with the share of its work that is done, from 0 to 1. It may be empty.
using ProgressCallback = std::function<void(double share)>;

}  // namespace stepsim

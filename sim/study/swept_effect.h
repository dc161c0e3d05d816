#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/study/sweep.h"

namespace stepsim {

/// Returns the keys of a sweep whose values make no difference to any figure of its points,
/// whatever the other keys are. The last axis varies fastest.
[[nodiscard]] std::vector<std::string> keys_without_effect(const std::vector<SweepAxis>& axes,
                                                           std::span<const SweepPoint> points);

}  // namespace stepsim

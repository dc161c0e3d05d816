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

/// Why a key of the links or of the buckets makes no difference to a point, as far as the point
/// says it: what has precedence, and what to vary instead; else empty.
[[nodiscard]] std::string reason_without_effect(const std::string& key, const SweepPoint& point);

}  // namespace stepsim

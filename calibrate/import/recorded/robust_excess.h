#pragma once

#include <vector>

#include "costmodel/records/run_record.h"

namespace stepsim {

/// What a time of a rank's step goes with: a constant, tokens, tokens x length.
[[nodiscard]] std::vector<double> size_features(const StepRecord& row);

/// How much longer each time is than a fit of the features says that long ones do not move: by
/// least absolute deviations, coefficients not negative.
///
/// Args:
///     features: [time][feature].
///     times: Milliseconds.
/// Returns: [time] milliseconds, negative where the time is shorter.
[[nodiscard]] std::vector<double> robust_excess(const std::vector<std::vector<double>>& features,
                                                std::vector<double> times);

}  // namespace stepsim

#pragma once

#include <string>

#include "sim/ask/request.h"

namespace stepsim {

/// `stepsim validate SCENARIO --step-times FILE`: predicted against a table of measured steps. The
/// status is kAnswerIsNo where the mean |error| exceeds `bound`, a fraction.
[[nodiscard]] Answer validate_step_times(const Scenario& scenario,
                                         const std::string& step_times,
                                         double bound);

}  // namespace stepsim

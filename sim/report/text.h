#pragma once

#include <string>
#include <vector>

#include "sim/prediction.h"
#include "sim/scenario.h"

namespace stepsim {

/// One policy: the step, its parts, the ranks.
[[nodiscard]] std::string run_text(const Scenario& scenario, const Prediction& prediction);

/// All policies ranked by useful tokens per second, and a recommendation.
[[nodiscard]] std::string compare_text(const Scenario& scenario,
                                       const std::vector<Prediction>& predictions);

}  // namespace stepsim

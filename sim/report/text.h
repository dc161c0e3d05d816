#pragma once

#include <string>
#include <vector>

#include "sim/prediction.h"
#include "sim/scenario.h"

namespace stepsim {

/// One policy: the step, its parts, the ranks.
[[nodiscard]] std::string run_text(const Scenario& scenario, const Prediction& prediction);

/// The best policy on the scenario's own data that fits into memory; null: there is none.
[[nodiscard]] const Prediction* recommended(const Scenario& scenario,
                                            const std::vector<Prediction>& predictions);
/// Which policy to use and what it gains over the others: a sentence.
[[nodiscard]] std::string recommendation_text(const Scenario& scenario,
                                              const std::vector<Prediction>& predictions);
/// The warnings of all, each once; out of memory with the policy's name.
[[nodiscard]] std::vector<std::string> warnings_of(const std::vector<Prediction>& predictions);

/// All policies ranked by useful tokens per second, and a recommendation.
[[nodiscard]] std::string compare_text(const Scenario& scenario,
                                       const std::vector<Prediction>& predictions);

}  // namespace stepsim

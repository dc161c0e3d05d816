#pragma once

#include <string>
#include <vector>

#include "costmodel/records/plan_file.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// A table of plans: one row a policy, rank and step, as the token-skew lab records it; where a
/// plan cuts samples, also where its parts start.
[[nodiscard]] std::string plan_csv(const std::vector<Plan>& plans);

/// The files that were written, and what trains them.
[[nodiscard]] std::string written_plans_text(const Scenario& scenario,
                                             const std::vector<std::string>& paths);

}  // namespace stepsim

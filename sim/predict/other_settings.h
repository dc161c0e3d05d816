#pragma once

#include <string>
#include <vector>

#include "costmodel/records/profile.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// In what the scenario differs from what the profile says it was made with, as far as that changes
/// compute: "kernels fused, and the scenario has torch_eager". Empty: in nothing that is known.
[[nodiscard]] std::vector<std::string> other_settings(const Scenario& scenario,
                                                      const Profile& profile);

}  // namespace stepsim

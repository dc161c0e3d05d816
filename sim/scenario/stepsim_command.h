#pragma once

#include <string>
#include <vector>

#include "sim/scenario/scenario.h"

namespace stepsim {

/// Returns a command to try next, as a POSIX shell reads it: "stepsim run x.toml --policy 'a b'
/// --set ddp.zero_stage=1". It has all that the scenario was read with, --seed, --steps and
/// --profile included, and `set` after that. `policy`: empty where the command takes none.
[[nodiscard]] std::string stepsim_command(const std::string& command,
                                          const Scenario& scenario,
                                          const std::string& policy = {},
                                          const std::vector<Setting>& set = {});

}  // namespace stepsim

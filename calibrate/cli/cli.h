#pragma once

#include <string>
#include <vector>

namespace stepsim {

/// Runs `stepcal ARGUMENTS`: finds the command, runs it, writes its answer, and turns exceptions
/// into messages and exit statuses.
[[nodiscard]] int run_stepcal(const std::vector<std::string>& arguments);

/// Does the same, but for the exceptions, which it raises.
int run_stepcal_command(const std::vector<std::string>& arguments);

}  // namespace stepsim

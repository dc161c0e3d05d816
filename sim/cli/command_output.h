#pragma once

#include <string>
#include <vector>

namespace stepsim {

/// How a command ended, and what it printed on both of its outputs, in order.
struct CommandOutput {
  int status = 0;  ///< The exit status; 128 + the signal that ended it.
  std::string text;
};

/// Runs a program with its arguments, its input empty. No shell reads the words. A name without a
/// slash is looked for in PATH. Raises EnvironmentFault when it cannot be started.
[[nodiscard]] CommandOutput command_output(const std::vector<std::string>& words);

}  // namespace stepsim

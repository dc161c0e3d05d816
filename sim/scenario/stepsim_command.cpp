#include "sim/scenario/stepsim_command.h"

#include "costmodel/base/input_error.h"
#include "costmodel/base/shell_word.h"

namespace stepsim {

std::string stepsim_command(const std::string& command,
                            const Scenario& scenario,
                            const std::string& policy,
                            const std::vector<Setting>& set) {
  const auto word = [](const std::string& text) {
    return " " + shell_word(printable(text, std::string::npos));
  };
  std::string line = "stepsim " + command + word(scenario.path);
  line += policy.empty() ? "" : " --policy" + word(policy);
  for (const std::vector<Setting>* settings : {&scenario.overrides, &set}) {
    for (const Setting& setting : *settings) {
      line += " --set" + word(setting.text());
    }
  }
  return line;
}

}  // namespace stepsim

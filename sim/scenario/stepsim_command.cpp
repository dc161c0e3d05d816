#include "sim/scenario/stepsim_command.h"

#include <algorithm>

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
  std::vector<Setting> settings = scenario.overrides;
  settings.insert(settings.end(), set.begin(), set.end());
  for (auto setting = settings.begin(); setting != settings.end(); ++setting) {
    const bool is_set_again = std::any_of(setting + 1, settings.end(), [&](const Setting& later) {
      return later.key() == setting->key();
    });
    if (!is_set_again) {
      line += " --set" + word(setting->text());
    }
  }
  return line;
}

}  // namespace stepsim

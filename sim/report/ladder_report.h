#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/study/ladder.h"

namespace stepsim {

/// A table of the ways to pad for each policy, the line that the best one is in a scenario, and the
/// command to try next.
[[nodiscard]] std::string ladder_text(const Scenario& scenario,
                                      const LadderOptions& options,
                                      const std::vector<LadderStudy>& studies,
                                      const Screen& screen = {});
/// {"format": "stepsim-ladder/1", …}
[[nodiscard]] Json ladder_json(const Scenario& scenario,
                               const LadderOptions& options,
                               const std::vector<LadderStudy>& studies);
/// One row a policy and way to pad.
[[nodiscard]] std::string ladder_csv(const std::vector<LadderStudy>& studies);

}  // namespace stepsim

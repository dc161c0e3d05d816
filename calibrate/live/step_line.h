#pragma once

#include <string>

#include "costmodel/records/run_record.h"

namespace stepsim {

/// One line from a rank to the parent of a live run: a step of a plan, or a sentinel time.
struct LiveLine {
  bool is_sentinel = false;
  int plan = 0;  ///< Index; of a sentinel: the round.
  double sentinel_ms = 0;
  StepRecord step;
};

/// Numbers in a fixed order, exact for doubles. parse(format(x)) == x.
[[nodiscard]] std::string format_line(const LiveLine& line);
/// Raises EnvironmentFault: the line is damaged.
[[nodiscard]] LiveLine parse_line(const std::string& text);

}  // namespace stepsim

#pragma once

#include <string>
#include <string_view>

#include "costmodel/records/run_record.h"

namespace stepsim {

/// What one line from a rank to the parent of a live run says: a step of a plan, or a sentinel
/// time.
struct LiveLine {
  bool is_sentinel = false;
  int plan = 0;  ///< The plan's index; for a sentinel the round.
  double sentinel_ms = 0;
  StepRecord step;
};

/// Stands before the backend's description, which is the first that rank 0 sends.
inline constexpr std::string_view kDescriptionMark = "description ";

/// Writes one JSON object, exact for doubles, so that parse_line() gives the numbers back.
[[nodiscard]] std::string format_line(const LiveLine& line);
/// Reads what format_line() writes. Raises EnvironmentFault when the line is damaged.
[[nodiscard]] LiveLine parse_line(const std::string& text);

}  // namespace stepsim

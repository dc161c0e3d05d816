#include "calibrate/live/diverged.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"

namespace stepsim {

std::string diverged_text(const RunRecord& record) {
  const auto diverged = [](const StepRecord& step) { return !std::isfinite(step.loss); };
  const auto first = std::ranges::find_if(record.steps, diverged);
  if (first == record.steps.end()) {
    return {};
  }
  return fmt::format(
      "the loss of {} was not finite in {} of {} records, first in step {} of repeat {}; the times "
      "are kept\n",
      printable(record.policy),
      std::ranges::count_if(record.steps, diverged),
      record.steps.size(),
      first->step,
      first->repeat);
}

}  // namespace stepsim

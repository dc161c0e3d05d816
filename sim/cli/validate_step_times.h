#pragma once

#include "sim/cli/options.h"

namespace stepsim {

/// `stepsim validate SCENARIO --step-times FILE`: predicted against a table of measured steps. The
/// status is kAnswerIsNo where the mean |error| exceeds `bound`, a fraction.
[[nodiscard]] Answer validate_step_times(const OptionParser& parser,
                                         const CommonOptions& common,
                                         double bound);

}  // namespace stepsim

#pragma once

#include <functional>
#include <string>

#include "calibrate/cli/measure_request.h"

namespace stepsim {

/// Measures into the file `samples`, on the ranks of a launcher if there is one. What `next` finds
/// follows unless the measurement is interrupted; ranks above 0 answer nothing. Raises InputError,
/// EnvironmentFault.
[[nodiscard]] Answer measure_answer(const CommandRequest& asked,
                                    const MeasureOptions& options,
                                    const std::string& samples,
                                    const std::function<Answer()>& next);

}  // namespace stepsim

#pragma once

#include <string>

#include "costmodel/plan_file.h"
#include "sim/prediction.h"

namespace stepsim {

/// A Chrome trace (JSON object format) for Perfetto: one process a rank with the threads "compute"
/// and "communicator", counters "useful tokens" and "padded tokens" per rank.
///
/// The prediction must hold its timelines. Times are microseconds from the start of step 0.
[[nodiscard]] std::string chrome_trace(const Prediction& prediction, const Plan& plan);

}  // namespace stepsim

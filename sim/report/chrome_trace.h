#pragma once

#include <string>

#include "costmodel/plan_file.h"
#include "sim/prediction.h"

namespace stepsim {

/// A Chrome trace (JSON object format) for Perfetto: one process a rank with the threads "compute"
/// and "communicator", counters "useful tokens" and "padded tokens" per rank.
/// Where the engine played the steps, every piece of work has a slice with the op's name, streams
/// beside the compute stream have threads of their own ("side stream"), and so have collectives
/// that a rank holds at the same time ("communicator 2"); slices of one thread never overlap.
///
/// The prediction must hold its timelines. Times are microseconds from the start of step 0.
[[nodiscard]] std::string chrome_trace(const Prediction& prediction, const Plan& plan);

}  // namespace stepsim

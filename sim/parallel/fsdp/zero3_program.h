#pragma once

#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/step_program.h"

namespace stepsim {

/// Writes what every rank's host does in one optimizer step of ZeRO-3: each unit of the model is
/// gathered before its forward and its backward, one unit ahead, and its gradients are scattered as
/// soon as they are ready. The root unit keeps its parameters from the forward to the backward. All
/// else is as in ddp_program(), which has the errors, too.
[[nodiscard]] StepProgram zero3_program(const TrainedModel& model,
                                        const BucketLists& buckets,
                                        const DdpOptions& options,
                                        const StepHost& host,
                                        const StepPrices& prices,
                                        const StepWork& step);

}  // namespace stepsim

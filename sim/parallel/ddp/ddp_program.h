#pragma once

#include <vector>

#include "sim/engine/engine.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/step_program.h"

namespace stepsim {

/// Writes what every rank's host does in one optimizer step, following the reducer of PyTorch:
/// copies, divisions, bucket launches in order, hooks, waits, copy-outs, optimizer.
///
/// Gradients become ready in the order of the backward ops. Throws std::invalid_argument when the
/// work does not fit the model (kernels per op, iterations per micro-batch, a parameter in no
/// bucket).
[[nodiscard]] StepProgram ddp_program(const TrainedModel& model,
                                      const BucketLists& buckets,
                                      const DdpOptions& options,
                                      const StepHost& host,
                                      const StepPrices& prices,
                                      const StepWork& step);

/// The communicators that ddp_program() uses: all ranks, then one per subgroup of post-local SGD.
/// With gloo each has two workers over the same sockets.
[[nodiscard]] std::vector<Communicator> ddp_communicators(const DdpOptions& options,
                                                          bool gloo,
                                                          int ranks);

/// Elements whose optimizer state each rank owns: all of them without sharding, the greedy
/// partition of ZeroRedundancyOptimizer (largest tensor first, to the rank with least so far) at
/// stage 1, an even share from stage 2 on.
[[nodiscard]] std::vector<std::int64_t> owned_elements(const TrainedModel& model,
                                                       int zero_stage,
                                                       int ranks);

}  // namespace stepsim

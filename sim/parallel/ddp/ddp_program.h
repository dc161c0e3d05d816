#pragma once

#include <vector>

#include "sim/parallel/ddp/ddp_work.h"
#include "sim/parallel/ddp/step.h"

namespace stepsim {

/// The gradient buckets of a DDP module, in launch order.
struct DdpBuckets {
  std::vector<Bucket> initial;  ///< The buckets of the first iteration.
  /// The buckets from the second iteration on. They equal the initial ones with
  /// find_unused_parameters, since DDP does not rebuild its buckets then.
  std::vector<Bucket> rebuilt;
};

/// One optimizer step as a program, and what its collectives are.
struct DdpProgram {
  Program program;
  std::vector<CollectiveUse> uses;  ///< [collective]
};

/// Marks of a DDP program: numbers that an instruction holds.
// NOLINTNEXTLINE(readability-identifier-naming): they are constants rather than kinds.
enum DdpMark : std::int32_t { kStepStart, kDataEnd, kForwardEnd, kBackwardEnd, kDdpMarks };

/// Writes what every rank's host does in one optimizer step, following the reducer of PyTorch:
/// copies, divisions, bucket launches in order, hooks, waits, copy-outs, optimizer.
///
/// Gradients become ready in the order of the backward ops. Throws std::invalid_argument when the
/// work does not fit the model (kernels per op, iterations per micro-batch, a parameter in no
/// bucket).
[[nodiscard]] DdpProgram ddp_program(const DdpModel& model,
                                     const DdpBuckets& buckets,
                                     const DdpOptions& options,
                                     const DdpHost& host,
                                     const DdpPrices& prices,
                                     const DdpStep& step);

/// The communicators that ddp_program() uses: all ranks, then one per subgroup of post-local SGD.
[[nodiscard]] std::vector<Communicator> ddp_communicators(const DdpOptions& options,
                                                          const DdpHost& host,
                                                          int ranks);

/// Elements whose optimizer state each rank owns: all of them without sharding, the greedy
/// partition of ZeroRedundancyOptimizer (largest tensor first, to the rank with least so far) at
/// stage 1, an even share from stage 2 on.
[[nodiscard]] std::vector<std::int64_t> owned_elements(const DdpModel& model,
                                                       int zero_stage,
                                                       int ranks);

/// What happened when a program was played, in the form that reports use.
[[nodiscard]] StepTimeline timeline_of(const ExecutionTrace& played, const DdpProgram& program);

}  // namespace stepsim

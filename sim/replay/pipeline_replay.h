#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/program.h"
#include "sim/replay/pipeline_trace.h"

namespace stepsim {

/// How a worker sends to its neighbours in the pipeline.
enum class SendMode : std::uint8_t {
  Blocking,  ///< A transfer starts when both stages have called it, and both wait for its end;
             ///< transfers between the same two compute rows are launched together.
  Buffered   ///< A transfer starts when the sender calls it; only the receiver waits for its end.
};

/// What a replay changes about the recording.
struct PipelineReplayOptions {
  SendMode sends = SendMode::Blocking;
  bool balanced = false;  ///< True: every micro-batch takes the mean time of its stage.
  bool host_gaps = true;  ///< False: a worker goes on at once when a row is over.
};

/// One step as a program of the engine, and the communicators that the program refers to.
struct PipelineProgram {
  Program program;
  std::vector<Communicator> communicators;
};

/// Lowers one step. The workers become the engine's ranks, and all work runs on their hosts.
[[nodiscard]] PipelineProgram lower(const PipelineTrace& recording,
                                    const PipelineStep& step,
                                    const PipelineReplayOptions& options);

/// Returns the length of every step, up to the latest end of a worker.
///
/// Each worker runs its rows in recorded order. Compute takes its recorded time, a transfer between
/// stages waits as `options.sends` says, and a group's operation starts when all its workers have
/// arrived.
///
/// Between two rows the host is busy with what is not recorded. Before a worker's own row that is
/// the recorded gap, but no more than four times the median of that row over the replicas. The
/// start of a communication is recorded without its wait, so the gap before it may hold a wait:
/// there it is the shortest gap of all workers. Transfers between stages start at once.
///
/// Raises InputError: workers wait for each other for ever.
[[nodiscard]] std::vector<Duration> replay(const PipelineTrace& recording,
                                           const PipelineReplayOptions& options = {});

}  // namespace stepsim

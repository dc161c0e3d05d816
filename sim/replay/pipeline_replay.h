#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/program.h"
#include "sim/replay/pipeline_trace.h"

namespace stepsim {

/// How a worker sends to its neighbours in the pipeline.
enum class Sends : std::uint8_t {
  Blocking,  ///< A transfer starts when both stages are there, and both wait for its end; transfers
             ///< between the same two compute rows go together.
  Buffered   ///< A transfer starts when the sender is there; only the receiver waits for its end.
};

struct PipelineChoices {
  Sends sends = Sends::Blocking;
  bool balanced = false;  ///< Every micro-batch takes its stage's mean.
};

/// One step as a program of the engine, with the communicators that it names.
struct PipelineProgram {
  Program program;
  std::vector<Communicator> communicators;
};

/// Workers are the engine's ranks; all work is on their hosts.
[[nodiscard]] PipelineProgram lower(const PipelineTrace& recording,
                                    const PipelineStep& step,
                                    const PipelineChoices& choices);

/// Length of every step when each worker goes through its rows in recorded order: computing takes
/// its recorded time, a transfer between stages waits as `sends` says, and the operations of a
/// group start when all its workers are there. The step is the latest end.
///
/// Raises InputError: workers that wait for each other for ever.
[[nodiscard]] std::vector<Duration> replay(const PipelineTrace& recording,
                                           const PipelineChoices& choices = {});

}  // namespace stepsim

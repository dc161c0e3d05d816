#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calibrate/import/kineto/kineto_trace.h"

namespace stepsim {

/// When the host ran the passes of one micro-batch, in the trace's time.
struct KinetoPass {
  std::int64_t forward_ns = 0;       ///< The start of the forward pass,
  std::int64_t backward_ns = 0;      ///< of the backward pass's first node,
  std::int64_t backward_end_ns = 0;  ///< and the end of its last one: the last gradient is there.
};

/// The passes of one step, or why they cannot be told.
struct KinetoPasses {
  std::vector<KinetoPass> micro_batches;  ///< In order; empty when there is a `problem`.
  std::string problem;
  bool annotated = false;  ///< Whether forward passes are named; else one is all before backward.
};

/// Finds the passes of the step of this index: each forward pass with the nodes of autograd between
/// its start and the next one's.
[[nodiscard]] KinetoPasses kineto_passes(const KinetoTrace& trace, int step);

}  // namespace stepsim

#pragma once

#include <span>
#include <vector>

#include "costmodel/model/memory.h"
#include "costmodel/model/transformer.h"
#include "sim/parallel/fsdp2/fsdp2_memory.h"
#include "sim/parallel/memory_curve.h"

namespace stepsim {

/// The moments one of which is the peak, whatever activations take: those that no other moment
/// exceeds in bytes with as many layers' activations. `ops`: those that the moments' model was made
/// of. An op's activations count from its begin to its end.
[[nodiscard]] std::vector<MemoryMoment> peak_moments(const TransformerConfig& config,
                                                     const StepOps& ops,
                                                     std::span<const HeldMoment> moments);

/// What is held over a step, and the model that it is of.
struct HeldStep {
  TrainedModel model;
  std::vector<HeldMoment> moments;
};

/// The same as a curve for readers: where the sum of what is held turns, and where activations
/// change. Units have the names of their layers.
[[nodiscard]] HeldCurve held_curve(const TransformerConfig& config,
                                   const StepOps& ops,
                                   const HeldStep& step);

/// Notes that the gradient of a tied embedding is there from the head's backward on.
void tie_gradients(const TransformerConfig& config, const StepOps& ops, TrainedModel& model);

}  // namespace stepsim

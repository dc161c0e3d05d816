#include "sim/parallel/iteration.h"

namespace stepsim {

/// Whether the backward that comes now records the order in which gradients become ready.
bool IterationSequence::records_order() const {
  if (!options_.rebuilds || rebuilt_ || recorded_) {
    return false;
  }
  return options_.static_graph ? synchronised_ >= 1 : !options_.find_unused_parameters;
}

Iteration IterationSequence::next(bool synchronises) {
  Iteration iteration;
  iteration.synchronises = synchronises;
  iteration.rebuilds = recorded_ && !rebuilt_;
  rebuilt_ = rebuilt_ || iteration.rebuilds;
  iteration.uses_rebuilt = rebuilt_;
  iteration.broadcasts_buffers = options_.has_buffers && sync_parameters_;
  sync_parameters_ = synchronises;
  if (!synchronises) {
    iteration.launching = Launching::None;
    return iteration;
  }
  const bool first_static = options_.static_graph && synchronised_ == 0;
  iteration.launching = first_static ? Launching::AfterGraph : Launching::ByHooks;
  iteration.traverses_graph = options_.find_unused_parameters && !options_.static_graph;
  iteration.sends_bitmap = first_static || iteration.traverses_graph;
  recorded_ = recorded_ || records_order();
  ++synchronised_;
  return iteration;
}

}  // namespace stepsim

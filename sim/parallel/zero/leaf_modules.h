#pragma once

#include "costmodel/model/transformer.h"
#include "sim/parallel/trained_model.h"

namespace stepsim {

/// Adds the modules that hold parameters themselves as units to `model`, in the order in which the
/// forward comes to them: what DeepSpeed gathers as it runs. A module is told by the names of its
/// tensors, "layers.3.norm1" of "layers.3.norm1.weight"; modules whose tensors one op uses are one.
/// Unit 0 holds nothing: it has the ops without parameters. A head that shares the weight of the
/// embedding uses the embedding's unit. `ops`: those that the model was made of.
void add_leaf_modules(const TransformerConfig& config, const StepOps& ops, TrainedModel& model);

}  // namespace stepsim

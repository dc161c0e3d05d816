#pragma once

#include "costmodel/model/transformer.h"
#include "sim/parallel/trained_model.h"

namespace stepsim {

/// Adds the units of fully sharded training: one a layer; all other parameters belong to the root
/// unit. `ops`: those that the model was made of.
void add_layer_units(const TransformerConfig& config, const StepOps& ops, TrainedModel& model);

}  // namespace stepsim

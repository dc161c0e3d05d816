#pragma once

#include <string>
#include <vector>

#include "costmodel/model/transformer.h"
#include "sim/parallel/fsdp2/shard_unit.h"
#include "sim/parallel/trained_model.h"

namespace stepsim {

/// Which modules fully_shard is called on, below the model itself.
enum class UnitRule {
  /// Each block; the root has what is left. Blocks of a model that is known by its tensors are the
  /// modules of a list, as "encoder.layer.3".
  Blocks,
  /// The input embeddings, each block, and what follows the blocks, as torchtitan does; the ends
  /// are in the root where they share a weight.
  Ends,
  Model  ///< None: the model is one unit.
};

/// Adds the units of a rule to `model`, the root first. `ops`: those that the model was made of.
void add_model_units(const TransformerConfig& config,
                     const StepOps& ops,
                     UnitRule rule,
                     TrainedModel& model);

/// The units of a model that has them, with their tensors, in their own types. All are freed after
/// the forward but the root.
[[nodiscard]] std::vector<ShardUnit> shard_units(const TrainedModel& model);

}  // namespace stepsim

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
  Model,  ///< None: the model is one unit.
  Named   ///< The modules that a text names.
};

/// A rule, and for UnitRule::Named its text, see named_units().
struct UnitChoice {
  UnitRule rule = UnitRule::Blocks;
  std::string calls = {};
};

/// Adds the units of a choice to `model`, the root first, then in the order in which the forward
/// comes to them, outer ones before those inside. `ops`: those that the model was made of. Units
/// are called by their modules: "layers.3", "norm + lm_head"; "embedding" and "head" are the ends.
/// Raises InputError: what the text of a choice names is wrong, see named_units(), or parts two
/// tensors that are one.
void add_model_units(const TransformerConfig& config,
                     const StepOps& ops,
                     const UnitChoice& choice,
                     TrainedModel& model);

/// [unit] The last op of the forward in it or in a unit inside of it; -1: there is none, and for
/// the root.
[[nodiscard]] std::vector<int> last_forward_ops(const TrainedModel& model);

/// The units of a model that has them, with their tensors, in their own types. All are freed after
/// the forward but the root.
[[nodiscard]] std::vector<ShardUnit> shard_units(const TrainedModel& model);

}  // namespace stepsim

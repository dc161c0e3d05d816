#pragma once

#include "sim/batching/played_batches.h"
#include "sim/batching/training_effects.h"
#include "sim/predict/batch_plan.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// Fills in the lengths, the first epoch and the steps of a plan with the batches of a file: step t
/// is the file's step t modulo the number that it holds.
///
/// Raises InputError: the file is of other ranks or micro-batches than the scenario, or lacks the
/// second lengths that the scenario asks for.
void play(const Scenario& scenario, const PlayedBatches& played, PlannedPolicy& planned);

/// What the batches of a file do to training. They come in the only order that is known, and the
/// lengths that they are padded to are known too. `input`: the data as they were played.
[[nodiscard]] TrainingEffects played_effects(const PlayedBatches& played,
                                             const EpochPlan& epoch,
                                             const PolicyInput& input);

}  // namespace stepsim

#pragma once

#include "sim/batching/played_batches.h"
#include "sim/batching/training_effects.h"
#include "sim/predict/batch_plan.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// Plans the steps with the batches of a file: step t is the file's step t modulo the number that
/// it holds. Fills in the lengths and the first epoch.
///
/// Args:
///     take: Is told all micro-batches.
/// Raises:
///     InputError: the file is of other ranks or micro-batches than the scenario, or lacks the
///     second lengths that the scenario asks for.
void play(const Scenario& scenario,
          const PlayedBatches& played,
          PlannedData& planned,
          const TakeMicroBatch& take);

/// What the batches of a file do to training. They come in the only order that is known, and the
/// lengths that they are padded to are known too. `input`: the data as they were played.
[[nodiscard]] TrainingEffects played_effects(const PlayedBatches& played,
                                             const EpochPlan& epoch,
                                             const PolicyInput& input);

}  // namespace stepsim

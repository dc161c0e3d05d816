#pragma once

#include "sim/batching/played_batches.h"
#include "sim/batching/training_effects.h"
#include "sim/predict/batch_plan.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The batches of a file as an epoch. Raises InputError: the file is of other ranks or
/// micro-batches than the scenario, or lacks the second lengths that the scenario asks for.
[[nodiscard]] PlannedData played_data(const Scenario& scenario, const PlayedBatches& played);

/// Plans the steps with the batches of a file: step t is the file's step t modulo the number that
/// it holds. `take`: is told all micro-batches. Raises InputError as played_data().
void play(const Scenario& scenario, const PlayedBatches& played, const TakeMicroBatch& take);

/// What the batches of a file do to training. They come in the only order that is known, and the
/// lengths that they are padded to are known too. `input`: the data as they were played.
[[nodiscard]] TrainingEffects played_effects(const PlayedBatches& played,
                                             const EpochPlan& epoch,
                                             const PolicyInput& input);

}  // namespace stepsim

#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/import/recorded/recorded_run.h"
#include "calibrate/import/recorded/recorded_units.h"
#include "calibrate/samples/samples.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// What steps under fully_shard tell of its gathers, reductions and hooks.
///
/// A row's gathers are what ran between the call of a unit and its forward: wall time less
/// processor time is the wait, which of the rank that waited least is the gather's own. Their
/// processor time over what the units' hooks should take is how much longer hooks take here, in the
/// backward as well, where nothing marks them. What a backward takes beside its processor time, of
/// the rank for which that is least, is its gathers and its reductions together; the gathers are
/// known, and so the reductions are the rest.
struct RecordedSharding {
  RecordedUnits units;
  UnitHostTimes host;                     ///< Of hooks and copies, as this training has them.
  std::vector<CollectiveSample> gathers;  ///< By size.
  double reduce_seconds = 0;              ///< Of a micro-batch's reductions; 0: not told.
  bool whole_steps = false;               ///< The record tells no waits: steps are fitted whole.
  std::vector<std::string> notes;
};

/// Whether the records are of trainings under fully_shard. Raises InputError: some are, others not,
/// or their units differ.
[[nodiscard]] bool are_sharded(std::span<const RecordedRun> runs);

/// Reads what such records tell. `base` has the times of hooks where they were measured; null: the
/// usual ones are scaled.
[[nodiscard]] RecordedSharding fit_recorded_sharding(std::span<const RecordedRun> runs,
                                                     const Profile* base);

/// The runs with nothing but compute and waits in their passes: without the gathers of forwards,
/// and without the processor time that hooks and copies take in backwards. Unchanged where steps
/// are fitted whole.
[[nodiscard]] std::vector<RecordedRun> without_sharding(std::span<const RecordedRun> runs,
                                                        const RecordedSharding& sharding);

/// Makes the optimizer that of a whole model without sharded tensors, and notes how it was told.
void add_sharding(RecordedSharding& sharding, RecordedCosts& costs);

/// Puts hooks, all-gathers and reduce-scatters into a profile of the costs. Tables of the same
/// collective and ranks are scaled to what was recorded; others are made of the recorded sizes. An
/// all-reduce that no table prices is taken to last as long as a gather of as many bytes.
void add_sharding(const RecordedSharding& sharding, int ranks, Profile& profile);

}  // namespace stepsim

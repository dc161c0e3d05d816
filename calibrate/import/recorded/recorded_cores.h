#pragma once

#include <span>
#include <vector>

#include "calibrate/import/recorded/recorded_run.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// Whether the record holds processor times of the passes, as those of runs on a CPU do.
[[nodiscard]] bool has_processor_times(const RunRecord& record);

/// Whether the record says that there were fewer cores than ranks.
[[nodiscard]] bool has_fewer_cores(const RunRecord& record);

/// The cores that the ranks shared; 0 where each had one of its own or it cannot be told.
///
/// A machine can give fewer cores than it has. While all ranks compute, wall over processor time is
/// then ranks over cores, and it falls when some wait. That is taken to be so where the exposed
/// communication scatters less by a fifth under it than under one ratio for all times. With less
/// than a core for all ranks together it cannot be: other programs took the time.
[[nodiscard]] double shared_cores(const RunRecord& record);

/// [row] What sharing cores makes of the processor time of a step's forward and backward.
[[nodiscard]] std::vector<double> core_factors(const RunRecord& record, double cores);

/// What other programs took: wall over processor time of the forwards beyond what sharing `cores`
/// makes of it, of the rank for which that is least, because others may wait in a forward for the
/// first one's buffers. Less than a tenth is what a machine without other programs shows, too.
[[nodiscard]] CrowdedMachine crowded_machine(std::span<const RecordedRun> runs, double cores);

}  // namespace stepsim

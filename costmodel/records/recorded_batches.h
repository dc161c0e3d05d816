#pragma once

#include <string>
#include <vector>

#include "costmodel/records/plan_file.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// The micro-batches of one rank's step. A record knows no sample ids: its samples are numbered
/// from `first_sample` on.
///
/// Raises InputError that names `file`: the lengths of the samples were not recorded, or the step
/// is of several micro-batches that the record does not tell apart.
[[nodiscard]] std::vector<MicroBatch> micro_batches_of(const StepRecord& step,
                                                       const std::string& file,
                                                       std::int64_t first_sample = 0);

}  // namespace stepsim

#pragma once

#include <string>

#include "costmodel/records/plan_file.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// Raises InputError that names `file`: some rank has no step at all, as in one rank's own file of
/// a run, whose waiting for the others cannot be told from work.
void require_all_ranks(const RunRecord& record, const std::string& file);

/// Makes the plan that a run followed from its record alone, when stepsim_recorder.py described the
/// model: a chain of its tensors in order of registration, and the batches of its rows.
///
/// Each tensor gets a share of the backward: the time between the recorded launches of two buckets
/// is divided among the tensors of the later one by their elements, so that buckets are launched
/// where they were. Without bucket times the shares go by elements alone. Forward shares go by
/// elements; they decide no time, since the forward launches nothing.
///
/// Raises InputError that names `file`: the record does not describe its model or its lengths, a
/// step is of several micro-batches, or a rank is missing.
[[nodiscard]] Plan recorded_plan(const RunRecord& record, const std::string& file);

}  // namespace stepsim

#pragma once

#include <span>
#include <string>
#include <vector>

#include "costmodel/records/plan_file.h"
#include "costmodel/records/record_files.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// Makes the plan that a run followed from its record alone, when stepsim_recorder.py described the
/// model: a chain of its tensors in order of registration, and the batches of its rows.
///
/// Buckets hold tensors from the last registered one on, as many as their recorded bytes say. Where
/// gradients became ready in another order, tensors near a bucket's end are exchanged so that the
/// bytes agree.
///
/// Each tensor gets a share of the backward: the time between the recorded launches of two buckets
/// is divided among the tensors of the later one by their elements, so that buckets are launched
/// where they were. Without bucket times the shares go by elements alone. Forward shares go by
/// elements; they decide no time, since the forward launches nothing.
///
/// Raises InputError that names `file`: the record does not describe its model or its lengths, or a
/// step is of several micro-batches.
[[nodiscard]] Plan recorded_plan(const RunRecord& record, const std::string& file);

/// The plans of several records. Those of the same tensors get one model, with the mean of the
/// shares that records with bucket times tell. Where only some have bucket times, as those of
/// stepsim_calibrate.py, the others take their buckets. Where DDP rebuilt the buckets, the tensors
/// of the model are put in the order in which gradients became ready, as far as the buckets tell
/// it, so that DDP's limits make the recorded buckets of them.
[[nodiscard]] std::vector<Plan> recorded_plans(std::span<const RecordFile> files);

}  // namespace stepsim

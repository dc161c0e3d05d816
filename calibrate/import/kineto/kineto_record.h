#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/import/kineto/kineto_match.h"
#include "calibrate/import/kineto/kineto_trace.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// The steps of traces as a run record, or why none can be made.
struct KinetoRecord {
  std::optional<RunRecord> record;
  std::string problem;                ///< Empty when there is a record.
  std::vector<std::string> notes;     ///< What was taken from where.
  std::vector<std::string> warnings;  ///< What the record should not be used for.
};

/// Makes a record of the steps that all traces hold, of the ranks that have one. It describes the
/// model by the gradients that autograd accumulates, in the order in which DDP fills its buckets.
///
/// On a GPU, forward and backward are the time in which the GPU worked for them, without
/// collectives and gaps: so the record lays the work of a step end to end, lets all ranks begin
/// together, and lets an all-reduce end its transfer time after its last launch. On a CPU the times
/// are those of the main thread, as stepsim_recorder.py takes them.
///
/// Args:
///     length_first: See kineto_batches().
///     device: What the ranks ran on where the traces do not say.
[[nodiscard]] KinetoRecord kineto_record(std::span<const KinetoTrace> traces,
                                         const KinetoMatches& matches,
                                         std::optional<bool> length_first,
                                         const std::string& device);

}  // namespace stepsim

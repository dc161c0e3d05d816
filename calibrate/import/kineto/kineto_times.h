#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "calibrate/import/kineto/kineto_batches.h"
#include "calibrate/import/kineto/kineto_passes.h"
#include "calibrate/import/kineto/kineto_trace.h"
#include "costmodel/records/run_record.h"

namespace stepsim {

/// A step as one trace holds it.
struct KinetoTracedStep {
  std::size_t trace = 0;
  int step = 0;  ///< Index in KinetoTrace::steps.
  KinetoPasses passes;
  std::vector<KinetoBatch> batches;              ///< [micro-batch]
  std::vector<const KinetoCollective*> buckets;  ///< In order of launches.
};

/// The milliseconds of a record.
[[nodiscard]] double kineto_ms(std::int64_t nanoseconds);

/// How much of forward and backward the GPU worked.
struct KinetoIdle {
  std::int64_t busy_ns = 0;
  std::int64_t elapsed_ns = 0;  ///< From the first start to the last end of each micro-batch.
};

/// Sets the times of a row, and of its buckets the launches, to the time in which the GPU worked
/// for what the host launched in each pass. Adds to `idle`.
void take_gpu_times(const KinetoTrace& trace,
                    const KinetoTracedStep& traced,
                    StepRecord& row,
                    KinetoIdle& idle);

/// Sets the times of a row and its buckets to those of the main thread.
void take_host_times(const KinetoTrace& trace, const KinetoTracedStep& traced, StepRecord& row);

}  // namespace stepsim

#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "calibrate/import/recorded/recorded_run.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// Recorded runs without what held them up now and then, and what that was.
struct SteadyRuns {
  std::vector<RecordedRun> runs;
  StallNoise stalls;
  std::vector<std::string> notes;  ///< What was found, in words; empty where nothing was.
};

/// What a time of a rank's step goes with: a constant, tokens, tokens x length.
[[nodiscard]] std::array<double, 3> size_features(const StepRecord& row);

/// Finds the rare steps that something held up which is no part of a step: a checkpoint, an
/// evaluation, a garbage collection, an epoch's end, a profiler's export. Their times are cut to
/// what the fit below expects, and how often and how long they were held up goes into the noise.
///
/// A time of a pass belongs to such a step when it is longer than a fit by least absolute
/// deviations says by four times what nine tenths of the rows stay below, and by a tenth of a step.
/// So at most a tenth of the rows can be held up: what comes more often is how that pass is. First
/// meetings of a shape stay where they explain most of what is long in the passes, since
/// fit_recorded_shapes() prices them. A stall counts for no longer than its step was longer than
/// others of its size.
///
/// The first steps of a record, up to the first that nothing held up (compilation, first
/// allocations), become part of its warm-up and do not count as stalls, since they do not come
/// again. Nor do steps that were held up in a pass by more than two steps, if there are two at
/// least and in each a rank that was held up met a shape, which chance alone would bring about at
/// most once in 20: a library loads or compiles what a kind of shape needs, cuDNN for 2 s, in the
/// first few shapes of a process.
[[nodiscard]] SteadyRuns without_stalls(std::span<const RecordedRun> runs);

}  // namespace stepsim

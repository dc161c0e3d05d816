#pragma once

#include <optional>
#include <span>
#include <vector>

#include "calibrate/import/step_times/step_time_fit.h"

namespace stepsim {

/// A step to be predicted.
struct StepTimeQuestion {
  std::size_t compute = 0;  ///< The place of its batch in StepTimeJob::compute.
  Placement placement;
  std::int64_t micro_batches = 1;
};

/// A run to be timed: one placement, on some batches.
struct StepTimeRun {
  Placement placement;
  std::vector<std::size_t> compute;  ///< Places of the batches in StepTimeJob::compute.
  std::int64_t micro_batches = 1;
};

/// What a run would do for the predictions that are wanted.
struct NextRun {
  StepTimeRun run;
  double before = 0;  ///< Half of the 90 % intervals, as a fraction: the mean over the questions,
  double after = 0;   ///< and with the run.
};

/// Returns how much each candidate would narrow the intervals of the questions, the best first. Of
/// runs whose benefit differs by less than a tenth the one on fewer ranks comes first. The noise of
/// the wanted run stays in the intervals, since no other run removes it.
[[nodiscard]] std::vector<NextRun> rank_next_runs(const StepTimeFit& fit,
                                                  std::span<const StepTimeRun> candidates,
                                                  std::span<const StepTimeQuestion> questions);

/// Runs that a user of these nodes could time next: one to four nodes with one rank, two, or as
/// many as the table has on a node, on the smallest and the largest batch, with the micro-batches
/// that all rows have, else one; without placements of the table.
[[nodiscard]] std::vector<StepTimeRun> candidate_runs(const StepTimeFit& fit,
                                                      const StepTimeTable& table);

/// Eight nodes, or twice as many as the table has, with as many ranks each as it has on a node, on
/// the smallest and largest batch, with the micro-batches that all rows have, else one.
[[nodiscard]] std::vector<StepTimeQuestion> usual_questions(const StepTimeFit& fit,
                                                            const StepTimeTable& table);

}  // namespace stepsim

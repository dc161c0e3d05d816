#pragma once

#include <optional>
#include <span>
#include <vector>

#include "calibrate/import/step_times/step_time_fit.h"

namespace stepsim {

/// A step to time, and a step to be predicted.
struct StepTimeQuestion {
  std::size_t compute = 0;  ///< The place of its batch in StepTimeJob::compute.
  Placement placement;
};

/// What a row would do for the predictions that are wanted.
struct NextRow {
  StepTimeQuestion row;
  double before = 0;  ///< Half of the 90 % intervals, as a fraction: the mean over the questions,
  double after = 0;   ///< and with the row.
};

/// Returns how much each candidate would narrow the intervals of the questions, the best first. Of
/// rows whose benefit differs by less than a tenth the one on fewer ranks comes first. The noise of
/// a single run stays in the intervals, since no row removes it.
[[nodiscard]] std::vector<NextRow> rank_next_rows(const StepTimeFit& fit,
                                                  std::span<const StepTimeQuestion> candidates,
                                                  std::span<const StepTimeQuestion> questions);

/// Rows that a user of these nodes could time next: one to four nodes with one rank, or with as
/// many as the table has on a node, on the smallest and on the largest batch; without those in the
/// table.
[[nodiscard]] std::vector<StepTimeQuestion> candidate_rows(const StepTimeFit& fit,
                                                           const StepTimeTable& table);

/// Eight nodes, or twice as many as the table has, with as many ranks each as it has on a node, on
/// the smallest and largest batch.
[[nodiscard]] std::vector<StepTimeQuestion> usual_questions(const StepTimeFit& fit,
                                                            const StepTimeTable& table);

}  // namespace stepsim

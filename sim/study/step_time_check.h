#pragma once

#include <span>
#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "costmodel/records/step_time_table.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// A measured step and its prediction, in seconds.
struct StepTimeCheckRow {
  StepTimeRow measured;
  double step_s = 0;
  double low90_s = 0;
  double high90_s = 0;
  std::vector<MeanInterval> intervals;  ///< Of the levels that were drawn; milliseconds.
  double exposed_s = 0;  ///< Communication that nothing hides, waiting for slower ranks included.

  /// (predicted - measured) / measured
  [[nodiscard]] double error() const { return step_s / measured.step_s - 1; }
  [[nodiscard]] bool covered() const {
    return measured.step_s >= low90_s && measured.step_s <= high90_s;
  }
};

/// Rows of a table with as many nodes.
struct StepTimeGroup {
  std::string name;  ///< "1 node", "3 to 4 nodes", …
  int rows = 0;
  double error = 0;    ///< Mean |error|, as a fraction.
  double bias = 0;     ///< Mean error.
  double covered = 0;  ///< Share of rows inside their 90 % interval.
  /// Mean |error| of the exposed communication in seconds, over the rows that state it, and its
  /// measured mean, both less what a rank alone shows; 0 without such rows.
  double exposed_error_s = 0;
  double exposed_s = 0;
};

/// Predicts every row of a table: the scenario with the row's placement, and its first policy of
/// fixed batches with the row's batch; where the table has lengths, all samples of that length;
/// where it has micro-batches, those of the row, else the scenario's. Raises InputError: the
/// scenario has no policy of fixed batches, a cost is lacking, or a row has more samples than a
/// scenario takes.
[[nodiscard]] std::vector<StepTimeCheckRow> check_step_times(const Scenario& scenario,
                                                             const StepTimeTable& table,
                                                             const ProgressCallback& on_progress);

/// The rows by number of nodes: one rank, 1, 2, 3 to 4 and more nodes; groups without rows are left
/// out.
[[nodiscard]] std::vector<StepTimeGroup> step_time_groups(std::span<const StepTimeCheckRow> rows);

}  // namespace stepsim

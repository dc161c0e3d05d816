#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/network/placement.h"

namespace stepsim {

/// A measured training step: where it ran, with which batch, and what it took.
struct StepTimeRow {
  Placement placement;
  std::int64_t batch = 0;  ///< Samples of one rank's batch.
  /// Batches that a rank adds up in a step; gradients are reduced behind the last one.
  std::int64_t micro_batches = 1;
  std::int64_t length = 1;  ///< Tokens that every sample is padded to; 1 where nothing says.
  /// Standard deviation of `length` among the batches of a step, in tokens: each rank pads to the
  /// longest of its own samples. 0: all ranks have equal work. Micro-batches are independent.
  double length_sd = 0;
  double step_s = 0;  ///< The mean step of a rank.
  /// Exposed communication: from the end of the backward until the last all-reduce is done.
  std::optional<double> sync_s;
  std::optional<double> backward_s;  ///< Of all micro-batches, without exposed communication.
  std::optional<double> data_s;      ///< Waiting for the batch, inside the step.
  std::int64_t repeats = 1;          ///< How many steps the mean is of.
  std::optional<double> sd_s;        ///< Standard deviation of single steps.
  int line = 0;                      ///< In the file, from 1.
};

/// Step times as people write them down: a CSV file with a header.
struct StepTimeTable {
  std::string path;
  std::vector<StepTimeRow> rows;
  bool has_lengths = false;          ///< Whether a column says what samples are padded to.
  bool has_micro_batches = false;    ///< Whether a column says how many a step has.
  std::vector<std::string> ignored;  ///< Columns that say nothing to this program.
};

/// Returns the micro-batches of a step where all rows have as many, else 1.
[[nodiscard]] std::int64_t common_micro_batches(const StepTimeTable& table);

/// Reads a table of step times. Columns, in any order:
///
///     placement               as parse_placement() reads it; where the cell is empty, or without
///     nodes, ranks            this column, ranks dealt out evenly over nodes (also: gpus)
///     batch                   samples of one rank (also: local_batch)
///     step_s or step_ms       the mean step; or of all ranks together, with padding,
///     samples_per_s, tokens_per_s
///     micro_batches           optional: batches that a rank adds up before it reduces gradients
///     length or tokens        optional: what samples are padded to, or padded tokens of a batch
///     length_sd               optional, with length: how the lengths of the ranks' batches differ
///     sync_s, backward_s, data_s, sd_s (or _ms), repeats        optional; a cell may be empty
///
/// Raises InputError with line and column: a column or cell is missing, unknown, or no number; a
/// time is not positive; parts are longer than the step; ranks do not fit the nodes; or times of
/// the same configuration differ by more than 30 %. Median steps above 100 s are taken for
/// milliseconds in a column of seconds, and refused.
[[nodiscard]] StepTimeTable read_step_times(const std::string& path);

/// "1+1, batch 8" or "1+1, batch 8 x 384", for messages and tables.
[[nodiscard]] std::string configuration_of(const StepTimeRow& row, bool with_length);

}  // namespace stepsim

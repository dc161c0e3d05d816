#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/model/transformer.h"
#include "costmodel/records/plan_file.h"

namespace stepsim {

/// The batches of a file, a plan or a run record, to be played as they are.
struct PlayedBatches {
  std::string file;
  int ranks = 1;
  int steps = 1;
  std::vector<MicroBatch> batches;  ///< Sorted by step, then rank, then micro-batch.
  /// [sample] Lengths of the samples, which the batches name by their places here. A sample that
  /// they cut reaches to the end of its last part.
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> targets;       ///< [sample] Second lengths; empty: the file has none.
  std::optional<AttentionKind> attention;  ///< What the plan was made for; a record does not say.
};

/// Reads a plan file, or a run record, of which the batches of the first repeat are taken. Samples
/// get new numbers: 0, 1, … in the order of their ids, which a record does not know, so that there
/// each one is a sample of its own.
///
/// Raises InputError: what read_plan() and read_record_files() raise; the record has no lengths.
[[nodiscard]] PlayedBatches read_played_batches(const std::string& path);

}  // namespace stepsim

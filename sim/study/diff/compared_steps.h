#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/study/diff/effect.h"

namespace stepsim {

struct RecordFile;
struct StepRecord;

/// A recorded step of all ranks.
struct ComparedStep {
  bool after = false;
  std::size_t run = 0;  ///< Of both sides together.
  double start_ms = 0;  ///< On the run's clock.
  double step_ms = 0;   ///< From the last rank's start to the last rank's end.
  int new_shapes = 0;   ///< Ranks that meet a pair of samples and length for the first time.
  std::vector<const StepRecord*> ranks;  ///< [rank]

  /// Padded tokens of the rank that has most.
  [[nodiscard]] double most_tokens() const;
};

/// Steps that something held up now and then which is no part of a step.
struct HeldUpSteps {
  int steps = 0;  ///< All steady ones.
  int held_up = 0;
  double ms = 0;  ///< What they were longer, all together.
};

/// The steps of two sides that can be compared.
struct ComparedSteps {
  std::vector<ComparedStep> steps;  ///< None: no step of one side has its like on the other.
  std::vector<ComparedStep> all;  ///< Beside those of batches that the other side has nothing like.
  bool same_batches = false;  ///< Steps are held against those of the same batches on all ranks.
  bool by_turns = false;      ///< The sides ran at the same time, by turns.
  std::size_t runs = 0;       ///< Of both sides.
  HeldUpSteps before;
  HeldUpSteps after;
  int first_steps = 0;  ///< Left out at the beginning of runs, since they were longer than others.

  /// Marks for the whole step, or for what one rank does by itself.
  [[nodiscard]] std::vector<DiffMark> marks(std::optional<int> rank = {}) const;
};

/// Chooses the steps: warm-up left out (`warmup` in place of the records' own), and steps that
/// something held up, by the rule of the import: longer than a fit by batches says by four times
/// what nine tenths of the steps stay below, and by a tenth of a step. Where three fifths of each
/// side's steps have the same batches on all ranks as steps of the other side, these alone are
/// compared, group by group; else steps in the range of sizes that both sides have, where
/// that is a quarter of each side's at least.
///
/// Raises InputError: models, numbers of ranks differ; fewer than kFewestCompared steps; a run is
/// on both sides. The records must outlive the result.
[[nodiscard]] ComparedSteps compared_steps(std::span<const RecordFile> before,
                                           std::span<const RecordFile> after,
                                           std::optional<int> warmup);

}  // namespace stepsim

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "sim/batching/algorithms/length_ladder.h"
#include "sim/predict/note.h"
#include "sim/predict/run/job.h"

namespace stepsim {

/// Where the lengths that batches are padded to come from.
enum class PaddingRule {
  Longest,   ///< Each batch is padded to its longest sample.
  Own,       ///< As the policy of the scenario says.
  Multiple,  ///< To the next multiple of a number.
  Rungs,     ///< To a ladder of a number of lengths at most.
  Optimum,   ///< To a ladder of as many lengths as pay.
};

/// What one way to pad makes of an epoch of a policy.
struct PaddedEpoch {
  PaddingRule rule = PaddingRule::Longest;
  std::int64_t number = 0;          ///< The multiple, or the most rungs.
  std::vector<std::int64_t> rungs;  ///< Of a ladder: the value of pad_to_lengths; else empty.
  std::int64_t lengths = 0;         ///< The different lengths of the padded batches.
  std::int64_t shapes = 0;          ///< The different shapes over all ranks.
  double shapes_per_rank = 0;       ///< The mean over ranks.
  double padding_ratio = 0;         ///< 1 - useful / padded tokens.
  double compute_seconds = 0;       ///< The slowest rank of each step: forward and backward.
  double shape_seconds = 0;   ///< The sum over steps of what the rank with most new shapes pays.
  double steady_step_ms = 0;  ///< Predicted mean step without noise and without new shapes.
  double step_ms = 0;         ///< The same with them.
  std::string refused;        ///< Why it cannot be used or priced; else empty. Then no times hold.
  std::vector<Note> notes;    ///< Of its prediction, without what `refused` says.
};

/// The ways to pad the batches of one policy.
struct LadderStudy {
  std::string policy;
  std::string skipped;              ///< Why its batches cannot be padded otherwise; else empty.
  std::int64_t steps = 0;           ///< Of an epoch.
  std::int64_t batch_sizes = 0;     ///< The different numbers of samples: at least as many shapes.
  std::vector<PaddedEpoch> rows;    ///< In the order of PaddingRule.
  std::optional<std::size_t> best;  ///< The row of least step_ms; of equal ones the least padded.
};

struct LadderOptions {
  double shape_seconds = 0;  ///< What a rank pays for a shape that it has not met before.
  ShapeKey key = ShapeKey::SamplesAndLength;
  std::int64_t step = 1;                     ///< The rungs of ladders are multiples of it.
  std::vector<std::int64_t> multiples = {};  ///< One row each.
  std::vector<std::int64_t> rungs = {};      ///< One row each.
  ProgressCallback on_progress = {};
};

/// Pads the first epoch of the job's policy in every way.
///
/// Each rank pays for each shape that it meets first, and a step waits for the rank that pays most.
/// The sum that optimal_length_ladder() makes least knows neither ranks nor steps: so ladders are
/// made for many weights of a shape in it, and of the batches that steps wait for as well as of
/// all, and of those with which the epoch takes least the one of least predicted step is kept. The
/// last rung holds the longest sample of the data, also where no batch of the epoch does.
///
/// Raises InputError: the policy cannot plan the data, the profile cannot price its batches, or
/// optimal_length_ladder() refuses the options.
[[nodiscard]] LadderStudy study_ladders(const Job& job, const LadderOptions& options);

}  // namespace stepsim

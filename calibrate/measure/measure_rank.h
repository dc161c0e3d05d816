#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/measure/backend.h"
#include "calibrate/samples/measure_plan.h"
#include "costmodel/io/json_file.h"

namespace stepsim {

/// One rank's share of one pass.
struct RankPass {
  int pass = 0;
  int rank = 0;
  int ranks = 1;
  int repetitions = 3;
  std::vector<GridPoint> points;  ///< Still to measure, the same on all ranks.
  std::vector<CollectiveTask> collectives;
  std::vector<std::int64_t> bucket_bytes;  ///< Sizes that the job itself reduces.
  std::vector<std::vector<int>> buckets;   ///< Of the steps: parameter indices in launch order.
  std::vector<std::int64_t> sentinel;      ///< Lengths.
  /// Overlaps that are in the file already; none = they are not asked for.
  std::optional<std::size_t> overlaps_kept;
  double clock_offset = 0;  ///< Added to clock_seconds() to get `at_seconds`.
};

/// Times a collective is measured in one pass: most for the all-reduces of the job's own buckets
/// (`bucket_bytes`), since between busy ranks a single time says little, and few for what takes
/// long.
[[nodiscard]] int collective_repetitions(const CollectiveTask& task,
                                         const std::vector<std::int64_t>& bucket_bytes);

/// Calls back to back in one measurement: 1, or of a pipelined task 20 (what nccl-tests does unless
/// told otherwise), from 1 MiB on 5.
[[nodiscard]] int collective_calls(const CollectiveTask& task);

/// Without rank and clock offset, which each rank has of its own.
[[nodiscard]] Json rank_pass_json(const RankPass& pass);
[[nodiscard]] RankPass rank_pass_from_json(const Json& json);

/// Measures and hands every line for the samples file to `send`. A collective's line holds this
/// rank's arrivals and ends only; the parent combines the ranks (RankTimes).
void measure_rank_pass(Backend& backend,
                       const RankPass& pass,
                       const std::function<void(const std::string& line)>& send);

/// Median sum of the op times of one step over a few repetitions, after a warm-up; all ranks at
/// once.
[[nodiscard]] double time_steps(Backend& backend,
                                const std::vector<std::int64_t>& lengths,
                                int repetitions);

/// What one rank says of a collective: [repetition] arrival and end, as in CollectiveTimes.
struct RankTimes {
  CollectiveTask task;
  std::vector<double> arrival;
  std::vector<double> end;
};
/// A line of kind "rank_times", and back.
[[nodiscard]] std::string rank_times_line(const RankTimes& times);
[[nodiscard]] RankTimes rank_times_from_json(const Json& line);

/// [repetition] Seconds of one call: from the last arrival to the last end, over the calls. `ranks`
/// must agree in task and repetitions.
[[nodiscard]] std::vector<double> combine_ranks(const std::vector<RankTimes>& ranks);

}  // namespace stepsim

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/measure/backend.h"
#include "calibrate/samples/measure_plan.h"
#include "costmodel/io/json_file.h"

namespace stepsim {

/// A sentinel step is the median of so many, after a warm-up.
inline constexpr int kSentinelRepetitions = 3;

/// One rank's share of one pass.
struct RankPass {
  int pass = 0;
  int rank = 0;
  int ranks = 1;
  int repetitions = 3;
  std::vector<GridPoint> points;  ///< Points still to measure, the same on all ranks.
  bool padded = true;             ///< Whether their batches have padding, see point_lengths().
  std::vector<CollectiveTask> collectives;
  std::vector<std::int64_t> bucket_bytes;  ///< The sizes that the job itself reduces.
  std::vector<std::vector<int>> buckets;   ///< [bucket] Parameter indices, in launch order.
  BatchLengths sentinel;                   ///< Of the sentinel step.
  /// The number of overlaps that are in the file already. Absent: overlaps are not measured.
  std::optional<std::size_t> overlaps_kept;
  double clock_offset = 0;  ///< Added to clock_seconds() to get `at_seconds`.
};

/// How often a collective is measured in one pass: most often for the all-reduces of the job's own
/// buckets (`bucket_bytes`), since between busy ranks a single time says little, and rarely for
/// what takes long.
[[nodiscard]] int collective_repetitions(const CollectiveTask& task,
                                         const std::vector<std::int64_t>& bucket_bytes);

/// How many calls one measurement makes back to back: 1, or for a pipelined task 20, as nccl-tests
/// does by default, and 5 from 1 MiB on.
[[nodiscard]] int collective_calls(const CollectiveTask& task);

/// Writes a pass without rank and clock offset, which each rank sets itself.
[[nodiscard]] Json rank_pass_json(const RankPass& pass);
[[nodiscard]] RankPass rank_pass_from_json(const Json& json);

/// Takes a line for the samples file.
using SendLine = std::function<void(const std::string& line)>;

/// Prepares the pass's points and the sentinel. Returns the points that can run here, the same on
/// all ranks; rank 0 says the others by lines. Raises EnvironmentFault when the sentinel cannot.
[[nodiscard]] std::vector<GridPoint> prepare_points(Backend& backend,
                                                    const RankPass& pass,
                                                    const SendLine& send);

/// Measures this rank's share of a pass and hands every line for the samples file to `send`. The
/// line of a collective holds this rank's arrivals and ends only (RankCollectiveTimes): the parent
/// combines the ranks.
void measure_rank_pass(Backend& backend, const RankPass& pass, const SendLine& send);

/// Times the distinct ops of a step, each by itself. Those that no batch changes, such as the
/// optimizer, are timed apart from the others, and far less often.
class StepTimes {
 public:
  explicit StepTimes(Backend& backend) : backend_(backend), elements_(backend.ops().ops.size()) {}

  /// Times the ops that no batch changes; their times hold until the next call.
  void time_elements();
  /// [kind] Seconds at a batch that has been prepared; nothing when one could not be had.
  [[nodiscard]] std::optional<std::vector<double>> at(const BatchLengths& lengths);
  /// Seconds of all ops of a step, one after the other.
  [[nodiscard]] std::optional<double> sum_at(const BatchLengths& lengths);

 private:
  Backend& backend_;
  std::vector<std::optional<double>> elements_;  ///< [kind]
};

/// Times the ops of a batch that has been prepared a few times after a warm-up, on all ranks at
/// once. Returns the median of their sums in seconds; nothing when none could be had.
[[nodiscard]] std::optional<double> time_sentinel(Backend& backend, const BatchLengths& lengths);

/// Writes {"kind":"prepared","pass","seconds","plans":[{"shape","forward_engine",
/// "backward_engine","workspace_bytes","seconds"}]}: what took time before the first step.
[[nodiscard]] std::string prepared_line(int pass,
                                        double seconds,
                                        const std::vector<PreparedPlan>& plans);
/// Writes {"kind":"disturbed","pass","rank","dropped","throttled","cooled_seconds"}: what came
/// between since the line before.
[[nodiscard]] std::string disturbed_line(int pass, int rank, const Disturbances& since);

/// When one rank arrived at a collective and when it ended, by repetition (see CollectiveTimes).
struct RankCollectiveTimes {
  CollectiveTask task;
  std::vector<double> arrival;
  std::vector<double> end;
  std::vector<bool> sound;
};
/// Writes a line of kind "rank_times".
[[nodiscard]] std::string rank_times_line(const RankCollectiveTimes& times);
/// Reads what rank_times_line() writes.
[[nodiscard]] RankCollectiveTimes rank_times_from_json(const Json& line);

/// Combines the ranks to seconds of one call, by repetition: the time from the last arrival to the
/// last end, over the number of calls. Repetitions that are not sound on every rank are left out.
/// `ranks` must agree in task and repetitions.
[[nodiscard]] std::vector<double> combine_ranks(const std::vector<RankCollectiveTimes>& ranks);

}  // namespace stepsim

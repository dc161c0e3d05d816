#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/measure/backend.h"
#include "calibrate/ranks/rank_processes.h"
#include "calibrate/samples/measure_plan.h"

namespace stepsim {

/// A median over fewer passes than these means nothing.
inline constexpr int kFewestPasses = 3;

/// Makes the backend of one rank, in that rank's process. `buckets` is [bucket]: parameter indices,
/// in launch order.
using BackendFactory =
    std::function<std::unique_ptr<Backend>(const RankContext& context,
                                           const TransformerConfig& model,
                                           const std::vector<std::vector<int>>& buckets)>;

/// What is to be measured, before the grid is chosen.
struct MeasureRequest {
  TransformerConfig model;
  int ranks = 1;
  DeviceKind device = DeviceKind::Cpu;
  GridBox box;
  std::vector<std::vector<int>> buckets;
  double budget_seconds = 60;
  std::uint64_t seed = 0;
  std::string out;                    ///< Samples file.
  std::string command;                ///< The command line, for the record.
  std::string date;                   ///< ISO 8601, UTC.
  LaunchedGroup* launched = nullptr;  ///< Null when the ranks are forked on this machine.
};

/// How far a measurement is.
struct MeasureProgress {
  int pass = 0;
  int passes = 0;
  int done = 0;  ///< Points and collective sizes of this pass that are measured.
  int total = 0;
  double elapsed_seconds = 0;    ///< Interrupted runs included, pauses left out.
  double remaining_seconds = 0;  ///< Estimate.
  int measurements = 0;          ///< How many are in the file.
};

/// Functions that measure() calls; any may be empty.
struct MeasureHooks {
  /// Gets the plan and its estimated time before the first measurement, and whether an existing
  /// file is continued.
  std::function<void(const MeasurePlan& plan, double estimate_seconds, bool resumed)> on_plan;
  std::function<void(const MeasureProgress& progress)> on_progress;
  std::function<void(const std::string& warning)> on_warning;
};

/// Measures on all ranks at once and appends every measurement to `request.out` as it comes. When
/// the file exists already, it must be of the same request, and measuring goes on where it stopped.
///
/// Each pass over the grid is a new group of processes, which runs the points in a new order and
/// with other bucket sizes: so drift does not look like an effect of the shape, and what a process
/// happens to get (pages, cores) averages out. A point that is precise enough (StoppingRule) is
/// left out of further passes. With a launcher, ranks above 0 measure what rank 0 tells them, write
/// nothing and return 0.
///
/// Returns the number of measurements in the file. Raises InputError (the file is of another
/// request), EnvironmentFault, Interrupted.
int measure(const MeasureRequest& request,
            const BackendFactory& factory,
            const MeasureHooks& hooks);

/// How fast the machine is, as the ops of two batches and two sizes of an all-reduce tell that are
/// timed before the start. The time that measuring a batch takes is a line in its floating-point
/// operations.
struct StepEstimate {
  double start_seconds = 0;    ///< To start the processes of a pass.
  double prepare_seconds = 0;  ///< To build what one batch shape needs, on one core.
  double fixed_seconds = 0;
  double seconds_per_flop = 0;
  double collective_latency = 2e-3;
  double collective_seconds_per_byte = 1e-9;
  std::vector<CollectiveKind> collectives = {
      CollectiveKind::AllReduce};  ///< The collectives that it can time.
  double prepare_cores = 1;  ///< Cores of a rank that build side by side; below 1 it shares one.
  /// Seconds until what `shapes` batch shapes need is built.
  [[nodiscard]] double prepare(std::size_t shapes) const;
  bool times_ops = true;  ///< Whether the backend times ops; else collectives only.
  /// Seconds that it takes to time the ops of one batch.
  [[nodiscard]] double step(const TransformerConfig& model, const GridPoint& point) const;
  /// Seconds of one call.
  [[nodiscard]] double collective(std::int64_t bytes) const;
};

/// Chooses the finest grid and the passes and repetitions that fit the budget.
[[nodiscard]] MeasurePlan choose_plan(const MeasureRequest& request, const StepEstimate& estimate);

/// Estimates the seconds of one pass: all points with their warm-ups, sentinels and collectives.
[[nodiscard]] double pass_seconds(const MeasurePlan& plan, const StepEstimate& estimate);

/// The buckets of a pass: the plan's own in the first, then all gradients in about 4 and in about
/// 12 buckets, so that the copies out of buckets are measured at several sizes.
[[nodiscard]] std::vector<std::vector<int>> buckets_of_pass(const MeasurePlan& plan, int pass);

/// The collectives of a pass. Every third pass has all of them. The passes between have only single
/// all-reduces of up to four times the bytes of all gradients: what is larger takes long and
/// matters little to this model. Calls back to back end at 4 MiB, beyond which they differ little
/// from single ones.
[[nodiscard]] std::vector<CollectiveTask> collectives_of_pass(const MeasurePlan& plan, int pass);

/// The grid points in the order of a pass, shuffled by the plan's seed.
[[nodiscard]] std::vector<GridPoint> order_of_pass(const MeasurePlan& plan, int pass);

}  // namespace stepsim

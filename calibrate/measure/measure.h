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

/// Makes the backend of one rank, in that rank's process. Buckets: parameter indices in launch
/// order.
using BackendFactory =
    std::function<std::unique_ptr<Backend>(const RankContext& context,
                                           const TransformerConfig& model,
                                           const std::vector<std::vector<int>>& buckets)>;

/// What is to be measured, before the grid is chosen.
struct MeasureRequest {
  TransformerConfig model;
  int ranks = 1;
  std::string device = "cpu";
  GridBox box;
  std::vector<std::vector<int>> buckets;
  double budget_seconds = 60;
  std::uint64_t seed = 0;
  std::string out;                    ///< Samples file.
  std::string command;                ///< The command line, for the record.
  std::string date;                   ///< ISO 8601, UTC.
  LaunchedGroup* launched = nullptr;  ///< Null: the ranks are forked on this machine.
};

/// How far a measurement is.
struct MeasureProgress {
  int pass = 0;
  int passes = 0;
  int done = 0;  ///< Points and collective sizes of this pass.
  int total = 0;
  double elapsed_seconds = 0;    ///< Interrupted runs included, pauses left out.
  double remaining_seconds = 0;  ///< Estimate.
  int measurements = 0;          ///< Kept in the file.
};

/// Called while measuring; any may be empty.
struct MeasureHooks {
  /// Before the first measurement: the plan, its estimated time, and whether a file is continued.
  std::function<void(const MeasurePlan& plan, double estimate_seconds, bool resumed)> on_plan;
  std::function<void(const MeasureProgress& progress)> on_progress;
  std::function<void(const std::string& warning)> on_warning;
};

/// Measures all ranks at once and appends every measurement to `request.out` as it comes. When the
/// file is there already, it must be of the same request, and measuring goes on where it stopped.
///
/// Each pass over the grid is a new group of processes, in a new order and with other bucket sizes:
/// drift is not a shape effect, and what a process happens to get (pages, cores) averages out. A
/// point that is precise enough (StoppingRule) is left out of further passes.
/// With a launcher, ranks above 0 measure what rank 0 tells them, write nothing and return 0.
/// Returns: measurements in the file.
/// Raises: InputError: another request's file; EnvironmentFault; Interrupted.
int measure(const MeasureRequest& request,
            const BackendFactory& factory,
            const MeasureHooks& hooks);

/// How fast the machine is, from two steps timed before the start (a line in the floating-point
/// operations through both) and two sizes of an all-reduce behind a step.
struct StepEstimate {
  double start_seconds = 0;    ///< Of the processes, at the start of a pass.
  double prepare_seconds = 0;  ///< Of Backend::prepare() for one batch shape.
  double fixed_seconds = 0;
  double seconds_per_flop = 0;
  double collective_latency = 2e-3;
  double collective_seconds_per_byte = 1e-9;
  std::vector<CollectiveKind> collectives = {CollectiveKind::AllReduce};  ///< It can time these.
  [[nodiscard]] double step(const TransformerConfig& model, const GridPoint& point) const;
  [[nodiscard]] double collective(std::int64_t bytes) const;  ///< One call.
};

/// Grid, passes and repetitions that fit the budget, as fine as possible.
[[nodiscard]] MeasurePlan choose_plan(const MeasureRequest& request, const StepEstimate& estimate);

/// Seconds of one pass: all points with their warm-ups, sentinels and collectives.
[[nodiscard]] double pass_seconds(const MeasurePlan& plan, const StepEstimate& estimate);

/// Buckets of pass `pass`: the plan's own, then all gradients in about 4 and in about 12 buckets,
/// so that the copies out of buckets are measured at several sizes.
[[nodiscard]] std::vector<std::vector<int>> buckets_of_pass(const MeasurePlan& plan, int pass);

/// Collectives of pass `pass`. Every third pass has all of them, those between only single
/// all-reduces of up to four times all gradients: what is larger takes long and matters little to
/// this model. Calls back to back end at 4 MiB: beyond, they differ little from single ones.
[[nodiscard]] std::vector<CollectiveTask> collectives_of_pass(const MeasurePlan& plan, int pass);

/// The grid points in the order of pass `pass`, shuffled by the plan's seed.
[[nodiscard]] std::vector<GridPoint> order_of_pass(const MeasurePlan& plan, int pass);

}  // namespace stepsim

#include "sim/predict/shape_summary.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/predict/metrics.h"
#include "sim/predict/prediction.h"
#include "sim/predict/run/run.h"
#include "sim/predict/step_simulator.h"

namespace stepsim {
namespace {

/// Stalls of the steps of a run or an epoch, by step, rank and micro-batch.
struct StallSum {
  std::int64_t builds = 0;
  int stalled_steps = 0;
  double seconds = 0;            ///< Of each step's slowest rank.
  double largest_of_a_rank = 0;  ///< Of all its steps together.
};

StallSum sum_stalls(std::span<const ShapeStall> stalls, std::size_t ranks, std::size_t micro) {
  StallSum sum;
  std::vector<double> of_rank(ranks, 0.0);
  for (std::size_t first = 0; first + ranks * micro <= stalls.size(); first += ranks * micro) {
    double slowest = 0;
    std::int64_t builds = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto of_step = stalls.subspan(first + rank * micro, micro);
      const double seconds = sum_of(of_step, &ShapeStall::seconds);
      builds += sum_of(of_step, &ShapeStall::builds);
      of_rank[rank] += seconds;
      slowest = std::max(slowest, seconds);
    }
    sum.builds += builds;
    sum.stalled_steps += builds > 0 ? 1 : 0;
    sum.seconds += slowest;
  }
  sum.largest_of_a_rank = *std::ranges::max_element(of_rank);
  return sum;
}

/// The steps of the run as they are once every shape is known, in milliseconds.
std::vector<double> warm_steps(Run& run) {
  CostFactors factors;
  factors.new_shapes = 0;
  StepSimulator simulator(run, factors);
  std::vector<double> steps;
  steps.reserve(at(run.scenario().steps));
  for (int step = 0; step < run.scenario().steps; ++step) {
    steps.push_back(to_ms(step_time(simulator.next())));
  }
  return steps;
}

/// [step] Shapes that some rank has met by its end.
std::vector<std::int64_t> distinct_by_step(const Run& run) {
  std::vector<std::int64_t> distinct(at(run.scenario().steps), 0);
  const std::size_t per_step = run.batches() / distinct.size();
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (std::size_t i = 0; i < run.batches(); ++i) {
    const BatchShape shape = cached_shape(run.scenario(), run.batch(i).shape);
    if (shape.samples > 0) {
      seen.emplace(shape.samples, shape.max_length);
    }
    distinct[i / per_step] = static_cast<std::int64_t>(seen.size());
  }
  return distinct;
}

/// Stalls of the first epoch, which are priced as the simulated ones turned out: a host that runs
/// ahead hides a part. `shown`: lost time over StallSum::seconds in the run.
std::optional<EpochShapes> epoch_of(const Run& run, double shown, double warm_ms) {
  std::vector<BatchShape> shapes = epoch_shapes(run.scenario(), run.policy(), *run.planned().data);
  const auto ranks = at(run.scenario().ranks);
  const auto micro = at(run.scenario().ddp.accumulation_steps);
  const std::size_t steps = shapes.size() / (ranks * micro);
  if (steps == 0) {
    return std::nullopt;
  }
  const auto stalls = shape_stalls(
      run.loads().shape_costs, shapes, run.scenario().ranks, run.scenario().ddp.accumulation_steps);
  const StallSum sum = sum_stalls(stalls, ranks, micro);
  const double lost = run.scenario().new_shapes.warm_up ? 0 : sum.seconds * shown;
  return EpochShapes{static_cast<int>(steps),
                     sum.builds,
                     sum.stalled_steps,
                     warm_ms + lost * 1e3 / static_cast<double>(steps),
                     sum.largest_of_a_rank};
}

}  // namespace

std::optional<ShapeSummary> shape_summary(Run& run, const Prediction& prediction) {
  if (run.loads().shape_costs.empty()) {
    return std::nullopt;
  }
  const Scenario& scenario = run.scenario();
  const StallSum sum =
      sum_stalls(run.loads().shape_stalls, at(scenario.ranks), at(scenario.ddp.accumulation_steps));
  ShapeSummary summary;
  summary.mechanisms = mapped(run.loads().shape_costs, &ShapeCost::mechanism);
  summary.builds = sum.builds;
  summary.stalled_steps = sum.stalled_steps;
  summary.warm_up_seconds = sum.largest_of_a_rank;
  summary.warmed_up = scenario.new_shapes.warm_up;
  summary.gave_up = std::ranges::any_of(run.loads().shape_stalls,
                                        [](const ShapeStall& s) { return s.load != 1; });
  summary.distinct = distinct_by_step(run);
  const std::vector<double> warm = warm_steps(run);
  constexpr double kNoTime = 1e-6;  // Milliseconds have rounding below the clock's nanosecond.
  for (const auto& [step, ms] : step_times(prediction.steps, 0)) {
    const double lost = ms - warm[at(step)];
    summary.step_ms.push_back(ms);
    summary.lost_ms.push_back(std::abs(lost) < kNoTime ? 0 : lost);
  }
  const auto warm_up = static_cast<std::ptrdiff_t>(scenario.warmup_steps);
  const std::span<const double> lost(summary.lost_ms);
  summary.warm_ms = prediction.summary.step_time_ms.mean - mean(lost.subspan(at(warm_up)));
  summary.run_ms = summary.warm_ms + mean(lost);
  const double shown = sum.seconds > 0 ? sum_of(lost) / (sum.seconds * 1e3) : 1;
  summary.hidden = summary.warmed_up ? 0 : std::max(0.0, 1 - shown);
  summary.epoch = epoch_of(run, summary.warmed_up ? 1 : shown, summary.warm_ms);
  return summary;
}

}  // namespace stepsim

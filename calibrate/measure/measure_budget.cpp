// How much to measure: grid, repetitions and passes for a time budget.
#include <algorithm>
#include <array>
#include <cmath>

#include "calibrate/measure/measure.h"
#include "calibrate/measure/measure_rank.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

constexpr int kMaxPasses = 40;
constexpr double kForkSeconds = 0.3;  ///< Processes and their end.

std::int64_t gradient_bytes(const TransformerConfig& model) {
  return sum_of(parameters(model),
                [](const Parameter& parameter) { return parameter.bytes().value(); });
}

/// Estimates the time for collectives in an average pass.
double collective_seconds(const MeasurePlan& plan, const StepEstimate& estimate) {
  constexpr int kWarmUps = 2;
  const std::vector<std::int64_t> buckets = bucket_bytes(plan.model, plan.buckets);
  double seconds = 0;
  for (int pass = 0; pass < 3; ++pass) {
    for (const CollectiveTask& task : collectives_of_pass(plan, pass)) {
      const double repetitions = kWarmUps + collective_repetitions(task, buckets);
      const double each = estimate.collective(task.bytes) * collective_calls(task);
      seconds += repetitions * each / 3;
    }
  }
  return seconds;
}

/// Chooses points and repetitions.
void choose_grid(const MeasureRequest& request, const StepEstimate& estimate, MeasurePlan& plan) {
  constexpr std::array<GridDensity, 7> kDensities = {
      {{11, 5}, {9, 5}, {8, 4}, {7, 3}, {6, 3}, {5, 2}, {4, 2}}};
  for (const GridDensity& density : kDensities) {
    plan.points =
        in_tile_pairs(make_grid(request.box, density, request.model.max_length), request.box);
    for (const int repetitions : {3, 2}) {
      plan.repetitions = repetitions;
      if (kFewestPasses * pass_seconds(plan, estimate) <= request.budget_seconds) {
        return;
      }
    }
  }
}

}  // namespace

double StepEstimate::prepare(std::size_t shapes) const {
  return shapes == 0 ? 0
                     : prepare_seconds * std::max(1.0, static_cast<double>(shapes) / prepare_cores);
}

double StepEstimate::step(const TransformerConfig& model, const GridPoint& point) const {
  return fixed_seconds + seconds_per_flop * training_flops(model, point.samples, point.length);
}

double StepEstimate::collective(std::int64_t bytes) const {
  return collective_latency + static_cast<double>(bytes) * collective_seconds_per_byte;
}

double pass_seconds(const MeasurePlan& plan, const StepEstimate& estimate) {
  const double steps =
      sum_of(plan.points, [&](const GridPoint& point) { return estimate.step(plan.model, point); });
  const std::vector<std::int64_t> sentinel = sentinel_lengths(plan.model);
  const GridPoint small{static_cast<std::int64_t>(sentinel.size()), sentinel.front()};
  const double sentinels = 1 + std::ceil(static_cast<double>(plan.points.size()) / 10);
  const double start = kForkSeconds + estimate.start_seconds + estimate.prepare(plan.points.size());
  // A sentinel has a warm-up; preparing runs every op once.
  const double of_sentinels =
      sentinels * (1 + kSentinelRepetitions) * estimate.step(plan.model, small);
  return start + steps * (1 + plan.repetitions) + (estimate.times_ops ? of_sentinels : 0) +
         collective_seconds(plan, estimate);
}

MeasurePlan choose_plan(const MeasureRequest& request, const StepEstimate& estimate) {
  MeasurePlan plan;
  plan.model = request.model;
  plan.ranks = request.ranks;
  plan.device = name_of(request.device);
  plan.seed = request.seed;
  plan.budget_seconds = request.budget_seconds;
  plan.box = request.box;
  plan.buckets = request.buckets;
  plan.collectives = estimate.collectives;
  plan.collective_bytes = collective_sizes(request.model, request.buckets, request.ranks);
  if (estimate.times_ops) {
    choose_grid(request, estimate, plan);
  }
  const double fitting = std::floor(request.budget_seconds / pass_seconds(plan, estimate));
  plan.passes = static_cast<int>(std::clamp<double>(fitting, kFewestPasses, kMaxPasses));
  return plan;
}

std::vector<std::vector<int>> buckets_of_pass(const MeasurePlan& plan, int pass) {
  if (pass % 3 == 0) {
    return plan.buckets;
  }
  const std::int64_t total = gradient_bytes(plan.model);
  const Bytes cap(pass % 3 == 1 ? std::max<std::int64_t>(1, total / 6) : 1);
  return buckets_by_cap(plan.model, cap, cap);
}

std::vector<CollectiveTask> collectives_of_pass(const MeasurePlan& plan, int pass) {
  constexpr std::int64_t kMaxPipelined = std::int64_t{4} << 20U;
  const bool all = pass % 3 == 0;
  const std::int64_t most = 4 * gradient_bytes(plan.model);
  std::vector<CollectiveTask> tasks;
  for (const CollectiveKind kind : plan.collectives) {
    for (const std::int64_t bytes : plan.collective_bytes) {
      if (all || (kind == CollectiveKind::AllReduce && bytes <= most)) {
        tasks.push_back({kind, bytes, false});
      }
      if (all && bytes <= kMaxPipelined) {
        tasks.push_back({kind, bytes, true});
      }
    }
  }
  return tasks;
}

std::vector<GridPoint> order_of_pass(const MeasurePlan& plan, int pass) {
  std::vector<GridPoint> order = plan.points;
  std::uint64_t state = plan.seed * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(pass) + 1;
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[next_random(&state) % i]);
  }
  return order;
}

}  // namespace stepsim

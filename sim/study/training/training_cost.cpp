#include "sim/study/training/training_cost.h"

#include <algorithm>

#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

constexpr double kSecondsPerHour = 3600;
constexpr double kMsPerSecond = 1e3;

TrainingCost cost_of(const ClusterPoint& point, const TrainingGoal& goal) {
  TrainingCost cost;
  cost.ranks = point.ranks;
  const PredictionSummary& summary = point.prediction->summary;
  if (point.prediction->out_of_memory || !(summary.step_time_ms.mean > 0)) {
    return cost;
  }
  const auto per_second = [&](double step_ms) {
    return step_ms > 0 ? summary.mean_samples_per_step() * kMsPerSecond / step_ms : 0;
  };
  cost.samples_per_s = per_second(summary.step_time_ms.mean);
  cost.samples_per_s_low90 = per_second(summary.step_time_ms.high90);
  cost.samples_per_s_high90 = per_second(summary.step_time_ms.low90);
  cost.per_rank = cost.samples_per_s / point.ranks;
  const double rate = goal.tokens ? summary.useful_tokens_per_s() : cost.samples_per_s;
  if ((goal.samples || goal.tokens) && rate > 0) {
    cost.hours = goal.tokens.value_or(goal.samples.value_or(0)) / rate / kSecondsPerHour;
    cost.rank_hours = *cost.hours * point.ranks;
    if (goal.price) {
      cost.money = *cost.rank_hours * *goal.price;
    }
  }
  return cost;
}

/// Whether `other` is at least as good in both rates, and better in one.
bool beats(const TrainingCost& other, const TrainingCost& cost) {
  return other.samples_per_s >= cost.samples_per_s && other.per_rank >= cost.per_rank &&
         (other.samples_per_s > cost.samples_per_s || other.per_rank > cost.per_rank);
}

}  // namespace

std::vector<TrainingCost> training_costs(std::span<const ClusterPoint> points,
                                         const TrainingGoal& goal) {
  std::vector<TrainingCost> costs =
      mapped(points, [&](const ClusterPoint& point) { return cost_of(point, goal); });
  double most = 0;
  for (const TrainingCost& cost : costs) {
    most = std::max(most, cost.per_rank);
  }
  for (TrainingCost& cost : costs) {
    cost.efficiency = most > 0 ? cost.per_rank / most : 0;
    cost.efficient = cost.per_rank > 0 && std::ranges::none_of(costs, [&](const auto& other) {
                       return beats(other, cost);
                     });
  }
  return costs;
}

std::optional<std::size_t> largest_worth(std::span<const TrainingCost> costs,
                                         const TrainingGoal& goal) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (!(costs[i].per_rank > 0) || costs[i].efficiency < goal.efficiency) {
      continue;
    }
    const auto larger = [&](const TrainingCost& a, const TrainingCost& b) {
      return a.ranks != b.ranks ? a.ranks > b.ranks : a.samples_per_s > b.samples_per_s;
    };
    if (!best || larger(costs[i], costs[*best])) {
      best = i;
    }
  }
  return best;
}

}  // namespace stepsim

#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sim/predict/prediction.h"

namespace stepsim {

/// What is to be trained, and what a rank costs.
struct TrainingGoal {
  std::optional<double> samples;  ///< At most one of samples and tokens is given.
  std::optional<double> tokens;   ///< Useful ones.
  std::optional<double> price;    ///< Of a rank (a GPU) for an hour, in any currency.
  double efficiency = 0.8;        ///< The least that a cluster is worth, as a fraction.
};

/// What a cluster does and costs. Rates have the 90 % interval of the step.
struct TrainingCost {
  int ranks = 1;
  double samples_per_s = 0;
  double samples_per_s_low90 = 0;
  double samples_per_s_high90 = 0;
  double per_rank = 0;    ///< Samples per second and rank.
  double efficiency = 0;  ///< per_rank over the largest per_rank of the points.
  /// No other point does as many samples per second and more per rank, or as many per rank and
  /// more.
  bool efficient = false;
  std::optional<double> hours;       ///< Absent without a goal.
  std::optional<double> rank_hours;  ///< hours times ranks: GPU-hours.
  std::optional<double> money;       ///< Absent without a price, too.
};

/// A predicted point with its number of ranks.
struct ClusterPoint {
  const Prediction* prediction = nullptr;
  int ranks = 1;
};

/// [point] Where memory does not suffice the rates are 0.
[[nodiscard]] std::vector<TrainingCost> training_costs(std::span<const ClusterPoint> points,
                                                       const TrainingGoal& goal);

/// The place of the point with most ranks that has the goal's efficiency; of those the fastest.
/// Nothing where no point has it.
[[nodiscard]] std::optional<std::size_t> largest_worth(std::span<const TrainingCost> costs,
                                                       const TrainingGoal& goal);

}  // namespace stepsim

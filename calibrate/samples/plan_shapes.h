#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "costmodel/records/plan_file.h"

namespace stepsim {

/// A batch shape to measure: one batch of a plan.
struct PlanShape {
  std::int64_t samples = 0;
  std::int64_t length = 0;            ///< What the batch is padded to.
  std::vector<std::int64_t> lengths;  ///< [sample]
  std::string policy;                 ///< Whose batch it is.
  int runs = 1;                       ///< How often it is run for one run of a rare shape.
  [[nodiscard]] std::int64_t tokens() const { return samples * length; }
  bool operator==(const PlanShape&) const = default;
};

/// Chooses `count` of the plans' own batches, well spread over samples and length on logarithmic
/// scales: first the corners (the batches with the most and the fewest samples, tokens and tokens x
/// length, and the longest and shortest ones), then the middle batch of each policy, then again and
/// again the batch that is farthest from all chosen so far. Fewer where the plans have fewer
/// shapes; at least the corners. Sorted by tokens x length, largest first.
///
/// `runs` is the share of the planned batches that are nearest to a shape, times the number of
/// shapes, from 1 to kMostRuns: where the costs are no smooth function of the size, a fit should be
/// best where most batches are. On costs that jump by a tenth at whole tiles it took the error of a
/// policy with one frequent shape from 3.8 to 1.2 %.
///
/// Raises InputError: no plans, or plans that differ in ranks.
[[nodiscard]] std::vector<PlanShape> choose_plan_shapes(std::span<const Plan> plans,
                                                        std::size_t count);

inline constexpr int kMostRuns = 8;

/// How far batches of the plans are from the nearest chosen shape: the median and the largest
/// ratio, of samples or of length.
struct ShapeDistance {
  double median = 1;
  double largest = 1;
};
[[nodiscard]] ShapeDistance distance_to(std::span<const PlanShape> shapes,
                                        std::span<const Plan> plans);

}  // namespace stepsim

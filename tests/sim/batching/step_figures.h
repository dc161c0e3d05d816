#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/batching/policy.h"

namespace stepsim::test {

/// Padded tokens of a plan's first steps, as the reports of policies give them.
struct StepFigures {
  std::int64_t total_padded = 0;
  double mean_std_padded = 0;  ///< Population standard deviation over ranks, mean over steps.
  double padded_per_step = 0;  ///< All ranks, mean over steps.
  double p95_over_mean = 0;    ///< Of a step's padded tokens, 95th percentile between neighbours.
  double mean_max_rank = 0;    ///< Padded tokens of the largest rank, mean over steps.
  double padding_ratio = 0;    ///< 1 - all useful / all padded.
};
[[nodiscard]] StepFigures step_figures(const EpochBatches& epoch,
                                       std::span<const std::int64_t> lengths,
                                       std::size_t steps);

/// [rank] samples rank, rank + ranks, … of the order.
[[nodiscard]] std::vector<std::vector<std::int64_t>> strided(const std::vector<std::int64_t>& order,
                                                             int ranks);

/// [rank][step] `count` samples at a time.
[[nodiscard]] EpochBatches equal_counts(const std::vector<std::vector<std::int64_t>>& orders,
                                        std::int64_t count);

}  // namespace stepsim::test

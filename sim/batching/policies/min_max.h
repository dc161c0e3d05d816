#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/batching/algorithms/min_max.h"
#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

namespace stepsim {

/// How each step's global batch is dealt out over prefixes of the ranks' buffers.
struct MinMaxBatching {
  enum class Cost { Tokens, SquaredTokens, QuadraticTokens, StepTime };

  std::int64_t global_batch = 1;      ///< SampleIds of all ranks in one step.
  std::int64_t buffer = 64;           ///< SampleIds each rank looks ahead (K).
  std::optional<std::int64_t> b_max;  ///< Most samples of one rank, from its memory.
  std::int64_t max_tokens = 0;  ///< Most padded tokens of one rank, from its memory; 0: no limit.
  Cost cost = Cost::Tokens;
  double quadratic_tokens = 0;  ///< For QuadraticTokens: k (M + M^2 / quadratic_tokens).
  StepCost step_cost;           ///< For StepTime.
  TieBreak tie_break = TieBreak::Variance;
};

/// [rank][step] Forms steps from each rank's samples in order, while every rank can fill its
/// buffer.
///
/// SampleIds that a step does not take stay at the head of the buffer. `orders` is left with what
/// was not placed.
[[nodiscard]] EpochBatches min_max_steps(std::vector<std::vector<std::int64_t>>& orders,
                                         std::span<const std::int64_t> lengths,
                                         const MinMaxBatching& options);

/// min_max_steps over the sampler's shares, then the tail: what is left of all ranks together is
/// dealt out anew before each step, so that no sample is lost and all ranks have equal step counts.
/// A last step of fewer samples than ranks is filled with the first samples of the epoch; drop_last
/// leaves samples out that fill no global batch. Where max_tokens does not hold a global batch, the
/// step takes what it holds, and there are more steps.
///
/// Gradients need weighting = "sample": a rank's loss counts ranks * own / global batch.
/// Raises InputError: fewer samples than ranks, a global batch below the ranks or above what their
/// buffers (b_max) hold together; a sample longer than max_tokens; cost = "step_time" where no step
/// cost is known.
[[nodiscard]] EpochBatches min_max_epoch(const PolicyParameters& parameters,
                                         const PolicyInput& input);

/// Raises InputError unless quadratic_tokens comes with cost = "quadratic".
void check_min_max(const PolicyParameters& parameters);

/// By time with cost = "step_time" only.
[[nodiscard]] StepCostUse min_max_step_cost_use(const PolicyParameters& given);

}  // namespace stepsim

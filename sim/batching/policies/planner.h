#pragma once

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

namespace stepsim {

/// Stepsim's own policy. The sampler's order is cut into windows of `window` steps; inside a window
/// samples are sorted by length. With steps = "equal_samples" they are cut into steps of
/// ranks * batch_size neighbours, and each step is dealt over the ranks in consecutive parts of the
/// least highest cost; with "equal_time" they are cut into as many steps whose batches all cost as
/// equally much as they can, so that steps hold unequal numbers of samples. The cost of a batch is
/// its step_cost where that is known, else its padded tokens, and max_tokens limits it as well.
/// Steps of a window are shuffled, and so are the parts of a step.
///
/// So a sample moves by less than a window, all ranks have equal numbers of batches and plan the
/// same from seed and lengths. Ranks hold unequal numbers of samples: weighting = "sample". Too few
/// samples for a batch on every rank are filled up with the first samples of the epoch; drop_last
/// leaves the samples out that fill no step. Where max_tokens does not hold the samples of a step,
/// there are more steps.
/// Raises InputError: fewer samples than ranks, a sample longer than max_tokens.
[[nodiscard]] EpochBatches planner_epoch(const PolicyParameters& parameters,
                                         const PolicyInput& input);

/// By time where the scenario says so, or leaves `cost` out and the costs are known.
[[nodiscard]] StepCostUse planner_step_cost_use(const PolicyParameters& given);

}  // namespace stepsim

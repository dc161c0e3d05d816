#pragma once

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

namespace stepsim {

/// Stepsim's own policy where new shapes cost something. In every step all ranks have batches of
/// one shape: `n` samples padded to the length of a rung. The rungs are those of
/// optimal_length_ladder() for the whole data set: a sample costs its part of its batch's time, and
/// each rung costs what all ranks wait for when they first meet its shape
/// (PolicyInput::shape_seconds). A rung has as many samples a batch as take the time with which an
/// epoch has about samples / batch_size batches. The sampler's order is dealt into the rungs, and
/// each that holds enough for a batch on every rank makes a step.
///
/// What is left at the end of the epoch fills steps of the longer rungs. Samples are repeated where
/// fewer than ranks are of that rung, and to fill the last step, which drop_last leaves out. All
/// ranks have as many samples in a step, so that losses need no weighting, but steps hold unequal
/// numbers.
///
/// Rungs are multiples of `length_multiple`, and there are at most `shapes` of them: by default as
/// many as pay, or 16 where nobody knows what a shape costs.
/// Raises InputError: fewer samples than ranks, a sample (padded to the multiple) longer than
/// max_tokens.
[[nodiscard]] EpochPlan planned_shapes_epoch(const PolicyParameters& parameters,
                                             const PolicyInput& input);

}  // namespace stepsim

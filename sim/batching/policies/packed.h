#pragma once

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

// Policies whose batch is one row of whole samples after one another, of `capacity` tokens at most.
// They are for attention = "varlen", for which the cost of a row depends on the sum of its samples
// and of their squares. The policies that cut samples are in packed_pieces.h. A sample above the
// capacity is bad input unless the policy leaves it out: cut lengths with data's cap.

namespace stepsim {

/// The data set packed once by pack_greedy_knapsack, longer samples left out; rows in the sampler's
/// order. Source: LLaMA-Factory.
[[nodiscard]] EpochBatches packed_knapsack_epoch(const PolicyParameters& parameters,
                                                 const PolicyInput& input);

/// pack_longalign of the data set; rows in the sampler's order. Source: LongAlign.
[[nodiscard]] EpochBatches packed_longalign_epoch(const PolicyParameters& parameters,
                                                  const PolicyInput& input);

/// The data set packed once by its histogram: longest or shortest pack first, or least squares;
/// rows in the sampler's order. Source: Graphcore.
[[nodiscard]] EpochBatches packed_histogram_epoch(const PolicyParameters& parameters,
                                                  const PolicyInput& input);

/// multipack in numpy's order of seed + epoch; what fills no step is left out. Of the sampler only
/// shuffle and seed count. Source: multipack_sampler.
[[nodiscard]] EpochBatches multipack_epoch(const PolicyParameters& parameters,
                                           const PolicyInput& input);

/// stream_rows in the sampler's order; unfinished rows and longer samples are left out.
/// Source: TRL, async GRPO.
[[nodiscard]] EpochBatches streamed_rows_epoch(const PolicyParameters& parameters,
                                               const PolicyInput& input);

}  // namespace stepsim

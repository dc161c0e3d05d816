#pragma once

#include <vector>

#include "costmodel/model/transformer.h"

namespace stepsim {

/// The ops of one training step in execution order: collate, zero_gradient (all elements),
/// step_ops() forward, step_ops() backward with a GradientCopyIn (one a parameter, n = its
/// elements) right after the op that completes it, GradientCopyOut (one a bucket, in order),
/// optimizer (all elements). Copies and updates have the parameters' dtype.
[[nodiscard]] std::vector<Op> training_ops(const TransformerConfig& config,
                                           const std::vector<std::vector<int>>& buckets);

}  // namespace stepsim

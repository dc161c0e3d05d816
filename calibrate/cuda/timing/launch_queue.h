#pragma once

#include <vector>

#include "costmodel/model/transformer.h"

namespace stepsim::cuda {

/// Launches and events that a stream takes while it is held; CUDA's queue holds about 1024, and the
/// next launch then blocks the host, which cannot release the stream any more.
constexpr int kQueued = 960;

/// No op has more launches, with those of the libraries, but copies out of a bucket and the
/// optimizer. (The most have an RMS norm backward, 16, and gelu_new backward, 14, operation by
/// operation.)
constexpr int kLaunchesOfOp = 20;

/// [op] The most launches of each of these ops of training_ops().
///
/// Args:
///     buckets: Parameters in each, in order; every one is copied out by itself.
[[nodiscard]] std::vector<int> most_launches(const std::vector<Op>& ops,
                                             const std::vector<std::vector<int>>& buckets);

}  // namespace stepsim::cuda

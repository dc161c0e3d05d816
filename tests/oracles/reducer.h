#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "costmodel/model/transformer.h"
#include "sim/parallel/step.h"

namespace stepsim {

/// Where buckets launch in a list of backward ops: result[b] is the index of the op after which
/// bucket b launches, the latest op that completes a gradient of a bucket j <= b (strict order: a
/// bucket ready early waits for all lower-numbered ones). Not decreasing.
///
/// `buckets`: parameter indices, in launch order. To place gradient copies exactly, list them as
/// ops of their own and let them carry `completes`.
///
/// Throws std::invalid_argument: a bucket without parameters; a parameter in no bucket or in two,
/// in no op or in two.
[[nodiscard]] std::vector<std::size_t> launch_after(std::span<const Op> backward,
                                                    const std::vector<std::vector<int>>& buckets);

/// Folds the spans of the backward ops, in order, into the spans between launches: result[b] is the
/// work up to the launch of bucket b, result.back() what follows the last launch
/// (RankStep::backward).
///
/// `launches`: from launch_after(). Throws std::invalid_argument: it decreases or names no op.
[[nodiscard]] std::vector<Span> fold_backward(std::span<const Span> ops,
                                              std::span<const std::size_t> launches);

}  // namespace stepsim

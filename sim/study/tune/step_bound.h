#pragma once

#include "sim/study/tune/reduce_bound.h"
#include "sim/study/tune/work_bound.h"

namespace stepsim {

/// Returns a time in seconds that a step of this work and these collectives cannot be shorter than,
/// without noise, in the mean over the steady steps.
///
/// All ranks wait for the end R(n) of the last all-reduce of step n. From then on each copies the
/// last bucket out and computes, and collectives of a rank follow one another, so for each bucket b
///   R(n+1) - R(n) >= copy-out + max_r (optimizer + forward + backward until b is complete)
///                    + the sum of the all-reduces of b and of all buckets after it.
/// On a device that the host does not outrun, the steady steps together take at least all launches
/// of the run less the longest time that the warm-up steps can have taken.
[[nodiscard]] double least_step_s(const WorkBound& work, const ReduceBound& reduce);

}  // namespace stepsim

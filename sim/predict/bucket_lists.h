#pragma once

#include "sim/parallel/ddp/ddp_buckets.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The gradient buckets of a scenario's model, or what its parallelism has in their place.
[[nodiscard]] BucketLists bucket_lists(const Scenario& scenario);

}  // namespace stepsim

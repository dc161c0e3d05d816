#pragma once

#include "costmodel/records/plan_file.h"
#include "sim/parallel/ddp/ddp_buckets.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The gradient buckets of a scenario's model, or what its parallelism has in their place.
[[nodiscard]] BucketLists bucket_lists(const Scenario& scenario);

/// What a plan's header says of [ddp]: limits of the buckets in turn, flags, hook, and by name the
/// keys that no argument of DistributedDataParallel can repeat.
[[nodiscard]] PlanDdp plan_ddp(const Scenario& scenario);

}  // namespace stepsim

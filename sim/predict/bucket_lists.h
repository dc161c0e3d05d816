#pragma once

#include "costmodel/records/plan_file.h"
#include "sim/parallel/ddp/ddp_program.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The gradient buckets of a scenario's model.
///
/// With ddp.bucket_caps both lists are filled to its limits, the initial one in order of
/// registration; the largest limit is the cap.
/// Source: _BucketCapacityConfig in torch/nn/parallel/distributed.py, Reducer::rebuild_buckets and
/// compute_bucket_assignment_by_size in torch/csrc/distributed/c10d/reducer.cpp, PyTorch 2.12 or
/// later, read in public copies. The Python reducer, which takes no such list, is not simulated.
[[nodiscard]] DdpBuckets bucket_lists(const Scenario& scenario);

/// The first synchronised iteration that reduces rebuilt buckets, counted from 1; 0: none does.
[[nodiscard]] int first_rebuilt(const DdpOptions& ddp);

/// What a plan's header says of [ddp]: limits of the buckets in turn, flags, hook, and by name the
/// keys that no argument of DistributedDataParallel can repeat.
[[nodiscard]] PlanDdp plan_ddp(const Scenario& scenario);

}  // namespace stepsim

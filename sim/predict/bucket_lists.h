#pragma once

#include "sim/ddp/ddp_program.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The gradient buckets of a scenario's model.
[[nodiscard]] DdpBuckets bucket_lists(const Scenario& scenario);

}  // namespace stepsim

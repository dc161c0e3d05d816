#pragma once

#include "costmodel/records/profile.h"
#include "sim/parallel/reduce_bound.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// Raises InputError: the profile has no price for a collective.
[[nodiscard]] ReduceBound reduce_bound(const Scenario& scenario, const Profile& profile);

}  // namespace stepsim

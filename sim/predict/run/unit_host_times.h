#pragma once

#include "costmodel/records/profile.h"
#include "sim/parallel/step_work.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// What a host spends on units of sharded training as far as the scenario does not say: as the
/// profile measured it, else usual_unit_times(). Both are times on a machine of its own, and are
/// stretched by what other programs took while the profile's steps were recorded, and on a CPU by
/// the ranks of a node that share its cores.
[[nodiscard]] UnitHost unit_host_of(const Scenario& scenario, const Profile& profile, bool on_cpu);

}  // namespace stepsim

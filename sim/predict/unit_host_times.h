#pragma once

#include "costmodel/records/profile.h"
#include "sim/parallel/step_work.h"

namespace stepsim {

/// What a host spends on units of sharded training as far as the scenario does not say: as the
/// profile measured it, else usual_unit_host(). Both are times on a machine of its own, and are
/// stretched by what other programs took while the profile's steps were recorded.
[[nodiscard]] UnitHost unit_host_of(const Profile& profile, bool on_cpu);

}  // namespace stepsim

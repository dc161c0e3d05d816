#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "costmodel/network/collective_pricer.h"
#include "costmodel/records/profile.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The profile that a scenario names. Where the scenario gives its own times, the profile holds no
/// costs but those of collectives; an inline table of all-reduces replaces the profile's.
/// Raises InputError: the scenario names no profile and gives no times, or the file is not usable.
[[nodiscard]] Profile scenario_profile(const Scenario& scenario);
/// Does the same with the profiles that `read` gives for a path, which scenarios may share.
[[nodiscard]] std::shared_ptr<const Profile> scenario_profile(
    const Scenario& scenario,
    const std::function<std::shared_ptr<const Profile>(const std::string& path)>& read);

/// The ranks that are slower or faster than the costs: those that the scenario states, else those
/// that the profile was recorded on, when it was on as many ranks.
[[nodiscard]] std::vector<SlowRank> slow_ranks(const Scenario& scenario, const Profile& profile);

/// What prices the collectives of a scenario, from its profile or the links that it states.
[[nodiscard]] CollectivePricer scenario_pricer(const Scenario& scenario, const Profile& profile);

}  // namespace stepsim

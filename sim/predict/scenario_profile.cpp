#include "sim/predict/scenario_profile.h"

#include <iterator>
#include <memory>
#include <utility>

#include "costmodel/base/input_error.h"
#include "costmodel/records/profile_cost_model.h"

namespace stepsim {

std::shared_ptr<const Profile> scenario_profile(
    const Scenario& scenario,
    const std::function<std::shared_ptr<const Profile>(const std::string& path)>& read) {
  if (!scenario.times && scenario.profile.empty()) {
    throw InputError(SourcePlace{scenario.path},
                     "cluster.profile: no profile is named; give --profile NAME or --profile FILE; "
                     "python3 -m stepsim.torch.calibrate makes one of this machine",
                     Lookup::Profiles);
  }
  std::shared_ptr<const Profile> named =
      scenario.profile.empty() ? nullptr : read(scenario.profile);
  if (!scenario.times && !scenario.all_reduce_table) {
    return named;
  }
  Profile profile;
  if (scenario.times) {
    profile.name = named != nullptr ? named->name : "times of the scenario";
    if (named != nullptr) {
      profile.collectives = named->collectives;
    }
    profile.host_is_device = false;
  } else {
    profile = *named;
  }
  if (scenario.all_reduce_table) {
    replace_table(profile, *scenario.all_reduce_table);
  }
  return std::make_shared<const Profile>(std::move(profile));
}

Profile scenario_profile(const Scenario& scenario) {
  return *scenario_profile(scenario, [](const std::string& path) {
    return std::make_shared<const Profile>(read_profile(path));
  });
}

std::vector<SlowRank> slow_ranks(const Scenario& scenario, const Profile& profile) {
  if (scenario.slow_ranks_given || std::ssize(profile.rank_factors) != scenario.ranks) {
    return scenario.slow_ranks;
  }
  std::vector<SlowRank> ranks;
  for (std::size_t rank = 0; rank < profile.rank_factors.size(); ++rank) {
    if (profile.rank_factors[rank] != 1) {
      ranks.push_back({static_cast<int>(rank), profile.rank_factors[rank]});
    }
  }
  return ranks;
}

CollectivePricer scenario_pricer(const Scenario& scenario, const Profile& profile) {
  PricerLimits limits;
  if (scenario.all_reduce_table) {
    // What the user typed in has few sizes; beyond them it is flagged, not refused.
    limits.max_size_factor = 1e9;
  }
  return collective_pricer(profile, scenario.topology, limits).at_speed(scenario.network_speed);
}

}  // namespace stepsim

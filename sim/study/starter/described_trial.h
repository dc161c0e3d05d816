#pragma once

#include <string>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/study/starter/described_scenario.h"

namespace stepsim {

/// Takes the type and the attention that the profile has costs of, where it has those of one alone.
/// Raises InputError: the profile cannot be read.
void take_from_profile(DescribedTraining& training);

/// Raises InputError: DescribedTraining::parallel cannot be this; with what can be written.
void check_sharding(const std::string& name);

/// Why commands would refuse the scenario, which is predicted policy by policy; empty where they do
/// not. What does not fit into memory is no refusal.
[[nodiscard]] std::string refusal_of(const Scenario& scenario);

/// What to give in place of a profile or GPUs that a training is refused with: the shipped profiles
/// that price it, or where the links between so many GPUs can be written. Empty where the profile
/// is not what it is refused for.
[[nodiscard]] std::string better_profile(const DescribedTraining& training,
                                         const DescribedLengths& lengths);

/// Where the GPUs lie: "16 GPUs of one node", "2 nodes of 8 GPUs".
[[nodiscard]] std::string placed_gpus(const Scenario& scenario);

/// What to say of a node of more GPUs than the profile has all-reduces of; empty where it has none
/// that is so full.
[[nodiscard]] std::string fuller_node(const DescribedTraining& training, const Scenario& scenario);

}  // namespace stepsim

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/batching/policy.h"

namespace stepsim {

/// Lines of Python that batch a training by a policy: a stepsim.torch.BatchSampler, a DataLoader
/// that takes it, and where ranks' losses weigh differently, what each is multiplied by. Empty for
/// a policy that plays a file of batches.
///
/// Args:
///     seed: The scenario's, by which the batches are those that `stepsim plan` writes.
///     scenario_file: Of the scenario that has the policy; policies that plan by predicted time,
///         or that have more than their kind's parameters, are read from it.
[[nodiscard]] std::vector<std::string> sampler_code(const BatchingPolicy& policy,
                                                    std::uint64_t seed,
                                                    const std::string& scenario_file);

}  // namespace stepsim

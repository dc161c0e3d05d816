#pragma once

#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "sim/predict/run/jobs.h"
#include "sim/scenario/setting.h"
#include "sim/study/recommendation.h"

namespace stepsim {

/// One way to share a training among its ranks.
struct ShardingStep {
  std::string name;               ///< "as recorded", "parameters kept", "root freed, too", "ddp"
  std::vector<Setting> settings;  ///< What it sets in the scenario.
  double step_ms = 0;
  double memory_mib = 0;   ///< The peak of one rank without what the record does not tell.
  bool fits = true;        ///< Into the profile's memory, where that is known.
  Gain gain;               ///< Over what was recorded.
  std::string not_priced;  ///< Why the profile cannot price it; else empty.
};

/// Predicts a policy of a scenario under fully_shard as it stands, with units kept or all freed
/// after their forward, and under DDP. Empty for other kinds, and where the profile's passes have
/// the communication inside, which no other sharding can be told from.
/// Raises InputError: the unchanged scenario cannot be priced.
[[nodiscard]] std::vector<ShardingStep> sharding_steps(Jobs& jobs,
                                                       const std::string& policy,
                                                       const ProgressCallback& on_progress);

/// The fastest one that fits, and is surely faster than what was recorded; else the first.
[[nodiscard]] const ShardingStep& best_sharding(const std::vector<ShardingStep>& steps);

}  // namespace stepsim

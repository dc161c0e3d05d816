#pragma once

#include <optional>

#include "costmodel/records/plan_file.h"
#include "sim/batching/training_effects.h"
#include "sim/batching/varlen_epoch.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The bucket lists of a scenario's model, in launch order.
struct BucketLists {
  std::vector<Bucket> initial;  ///< First iteration.
  std::vector<Bucket>
      rebuilt;  ///< From the second on (equal to initial with find_unused_parameters).
};
[[nodiscard]] BucketLists bucket_lists(const Scenario& scenario);

/// The batches of every step and rank that this policy makes of the scenario's data.
///
/// Raises InputError: lengths missing, more ranks than samples, an unusable policy; where the
/// policy plans by time, a profile that is missing or lacks a cost.
[[nodiscard]] Plan make_plan(const Scenario& scenario, const PolicySpec& policy);

/// What a policy does in one epoch of the data.
struct EpochEffects {
  TrainingEffects training;
  double planning_seconds = 0;      ///< That planning the epoch took just now, pricing included.
  std::optional<VarlenUse> varlen;  ///< With varlen attention.
};
/// Raises InputError as make_plan().
[[nodiscard]] EpochEffects plan_effects(const Scenario& scenario, const PolicySpec& policy);

/// Lengths of the data set this policy sees (its own, else the scenario's).
[[nodiscard]] std::vector<std::int64_t> data_lengths(const Scenario& scenario,
                                                     const PolicySpec& policy);

}  // namespace stepsim

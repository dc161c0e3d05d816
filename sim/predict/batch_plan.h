#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "costmodel/records/plan_file.h"
#include "sim/batching/known_lengths.h"
#include "sim/batching/policy.h"
#include "sim/batching/training_effects.h"
#include "sim/batching/varlen_epoch.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The first stage of a run: what a policy makes of a scenario's data, the batches of an epoch.
struct PlannedData {
  std::vector<std::int64_t> lengths;  ///< [sample] The lengths as they run, cut by a varlen call.
  std::vector<std::int64_t> targets;  ///< [sample] The second lengths; empty: there are none.
  EpochPlan first_epoch;              ///< All batches of the first epoch, of which the plan begins.
  std::optional<VarlenUse> varlen;    ///< How these fit into a varlen call, with varlen attention.
  /// The wall-clock time that the policy took for the first epoch. It differs from one run to the
  /// next, so it may be printed, but belongs in no result file.
  double planning_seconds = 0;
};

/// What a policy plans by.
struct PlanningCost {
  StepCost batch;            ///< Empty where the policy does not plan by time.
  double shape_seconds = 0;  ///< What a rank pays when it first meets a shape; 0: nothing is known.
};

/// The same with the batches of every step and rank, as `stepsim plan` writes them. Of many steps
/// they take much memory.
struct PlannedPolicy : PlannedData {
  Plan plan;
};

/// Is told the micro-batches of a plan: by step, then rank, then micro-batch.
using TakeMicroBatch = std::function<void(MicroBatch)>;

/// Plans the first epoch of a scenario.
///
/// Args:
///     cost: What the policy plans by, see planning_cost().
///     known: Data sets that were met before, and this one from now on.
/// Raises:
///     InputError: see check_memory(); lengths are missing, there are more ranks than samples, or
///     the policy cannot plan this data.
[[nodiscard]] PlannedData plan_data(const Scenario& scenario,
                                    const BatchingPolicy& policy,
                                    const PlanningCost& cost,
                                    KnownLengths& known);

/// Plans the steps of a scenario, and the later epochs that they reach.
///
/// Args:
///     data: plan_data().
///     take: Is told all micro-batches, which are not kept.
/// Raises:
///     InputError: see plan_data(); a batch is longer than the model takes.
void plan_steps(const Scenario& scenario,
                const BatchingPolicy& policy,
                const PlanningCost& cost,
                KnownLengths& known,
                const PlannedData& data,
                const TakeMicroBatch& take);

/// Plans both, and keeps the micro-batches.
[[nodiscard]] PlannedPolicy plan_policy(const Scenario& scenario,
                                        const BatchingPolicy& policy,
                                        const PlanningCost& cost);

/// The shape of a batch of the first epoch. `batch`: its ids in PlannedPolicy::first_epoch.
[[nodiscard]] BatchShape epoch_shape(const Scenario& scenario,
                                     const BatchingPolicy& policy,
                                     const PlannedData& planned,
                                     std::span<const std::int64_t> batch);

/// What the policy does to training in the first epoch.
/// Raises InputError: a batch of the epoch is in no bucket that it could be padded to.
[[nodiscard]] TrainingEffects first_epoch_effects(const Scenario& scenario,
                                                  const BatchingPolicy& policy,
                                                  const PlannedData& planned);

/// The lengths of the data set that this policy sees: its own, else the scenario's.
[[nodiscard]] std::vector<std::int64_t> data_lengths(const Scenario& scenario,
                                                     const BatchingPolicy& policy);
[[nodiscard]] std::vector<std::int64_t> data_lengths(const Scenario& scenario,
                                                     const BatchingPolicy& policy,
                                                     KnownLengths& known);

}  // namespace stepsim

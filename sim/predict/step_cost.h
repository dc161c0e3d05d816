#pragma once

#include <memory>
#include <optional>

#include "costmodel/compute/cost_model.h"
#include "costmodel/compute/host_floor.h"
#include "costmodel/compute/shape_cost.h"
#include "costmodel/records/profile.h"
#include "sim/batching/policy.h"
#include "sim/predict/batch_plan.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// Whether the profile's recorded passes are those of the scenario's model. Raises InputError: they
/// are not, and the profile prices no others.
[[nodiscard]] bool prices_recorded_model(const Scenario& scenario, const Profile& profile);

/// What the host takes at least for the recorded passes of the scenario's model; nothing where the
/// profile or the scenario says what a launch takes, or where they are not priced.
[[nodiscard]] std::optional<HostFloor> host_floor(const Scenario& scenario, const Profile& profile);

/// Elements that AdamW reads and writes a parameter: parameter, gradient and two moments in, all
/// but the gradient out.
inline constexpr int kAdamwMoves = 7;

/// The elements that SGD moves in place of AdamW's, where it is priced by the profile's optimizer;
/// nothing where it is not.
[[nodiscard]] std::optional<int> elements_moved_by_sgd(const Scenario& scenario,
                                                       const Profile& profile);

/// What the ops of a scenario's step cost: as in the profile, or shares of the step in [times].
/// Profiles hold AdamW; SGD costs its share of that, by the elements that it moves.
[[nodiscard]] std::unique_ptr<CostModel> cost_model(const Scenario& scenario,
                                                    const Profile& profile);

/// Forward and backward of one micro-batch on a rank of ordinary speed, for policies that plan by
/// time: the sum of its kernels, or of their launches where the host is slower. Collectives, data
/// and optimizer are the same for every batch and left out.
///
/// Unless attention is "varlen" a batch is priced as if all its padding were useful, so that few
/// shapes have to be priced. The result keeps what it has priced; it outlives its arguments.
[[nodiscard]] StepCost step_cost(const Scenario& scenario, const Profile& profile);

/// What a new shape costs a rank, and what makes one.
struct NewShapeCost {
  double seconds = 0;
  ShapeKey key = ShapeKey::SamplesAndLength;
};

/// The costs of new shapes that depend on the padded length, added up: those of the scenario, else
/// the profile's. Nothing where there are none. A compiler's are left out, since changing sizes
/// become symbolic.
[[nodiscard]] std::optional<NewShapeCost> new_shape_cost(const Scenario& scenario,
                                                         const Profile& profile);

/// What this policy plans by: the step_cost() with its attention and the new_shape_cost(), or
/// nothing where it does not plan by time.
[[nodiscard]] PlanningCost planning_cost(const Scenario& scenario,
                                         const BatchingPolicy& policy,
                                         const Profile& profile);

/// Returns the planning cost where no profile is read yet: the one that the scenario names is read
/// only for a policy that plans by time. One that plans by tokens where no costs are known does so
/// too while a recorded model's profile is not there. Raises InputError as scenario_profile().
[[nodiscard]] PlanningCost planning_cost(const Scenario& scenario, const BatchingPolicy& policy);

}  // namespace stepsim

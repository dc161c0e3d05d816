#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "costmodel/compute/shape_cost.h"
#include "costmodel/compute/shape_stalls.h"
#include "costmodel/records/profile.h"
#include "sim/predict/counterfactual.h"
#include "sim/predict/draws/jitter.h"
#include "sim/predict/run/planned_run.h"
#include "sim/predict/run/priced_batches.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// What makes the ranks and steps of a run differ beside their batches: the last of its stages
/// before it is played.
struct RunLoads {
  /// [micro-batch] How much more or less work it is than was priced.
  std::vector<double> batch_factor;
  bool by_rank = true;              ///< The factors of all batches of a rank are the same.
  std::vector<double> rank_factor;  ///< [rank] How much slower it is than others.
  /// What builds something for a new shape: the scenario's mechanisms, else the profile's.
  std::vector<ShapeCost> shape_costs;
  std::vector<ShapeStall> shape_stalls;  ///< [micro-batch] Empty where new shapes cost nothing.
  double cores = 0;                      ///< That the ranks of a node share; 0: no limit.
  Jitter jitter;
};

/// [rank] The number of its class, where loads are by_rank: ranks of one class take the same time
/// for the same batch.
[[nodiscard]] std::vector<std::uint32_t> classes_of_ranks(const RunLoads& loads);

/// The loads of a run whose effective scenario this is. Raises InputError: see check_mechanisms().
[[nodiscard]] RunLoads run_loads(const Scenario& scenario,
                                 const Profile& profile,
                                 const PlannedRun& planned,
                                 const PricedBatches& priced,
                                 const std::optional<Counterfactual>& counterfactual);

}  // namespace stepsim

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "sim/points/point_runner.h"
#include "sim/predict/memory_need.h"
#include "sim/predict/prediction.h"
#include "sim/predict/run/jobs.h"
#include "sim/scenario/scenario.h"
#include "sim/study/shape_cure.h"

namespace stepsim {

/// One policy beside others, and how it could save time on new shapes.
struct ComparedPolicy {
  Prediction prediction;
  double planning_seconds = 0;    ///< Wall-clock time that planning one epoch took.
  std::optional<ShapeCure> cure;  ///< Absent where new shapes cost nothing.
};

/// [policy] Predicts all policies of the scenario, in its order, with what they do to training.
/// `rows`: see PredictOptions.
/// Raises what predict(), cheapest_cure() and PointRunner::evaluate() do.
[[nodiscard]] std::vector<ComparedPolicy> compare_policies(Jobs& jobs,
                                                           KeptRows rows,
                                                           PointRunner& runner,
                                                           const ProgressCallback& on_progress);

/// Predicts those policies that are in the runner's shard, and keeps them in its store with their
/// rows. Returns how many there are.
std::size_t keep_compared(Jobs& jobs, PointRunner& runner, const ProgressCallback& on_progress);

}  // namespace stepsim

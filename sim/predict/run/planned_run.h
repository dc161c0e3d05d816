#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "costmodel/model/batch_shape.h"
#include "sim/batching/policy.h"
#include "sim/predict/batch_plan.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// What a run knows of a micro-batch. Many are alike.
struct RunBatch {
  BatchShape shape;
  std::int64_t samples = 0;  ///< The shape counts the rows that they are packed into.
  std::uint32_t price = 0;   ///< In PlannedRun::priced_shapes.
};

/// A batch of the first epoch.
struct EpochBatch {
  BatchShape shape;
  int step = 0;  ///< Of the epoch, whether or not it is simulated.
  int rank = 0;
};

/// The second stage of a run: the batches of its steps, without any price.
struct PlannedRun {
  std::shared_ptr<const PlannedData> data;
  std::vector<RunBatch> different;
  /// Which of the different ones each micro-batch is: by step, then rank, then micro-batch.
  std::vector<std::uint32_t> batches;
  /// The shapes that prices depend on, each once. Without varlen attention the useful tokens are
  /// all of them, or 0 where there is padding: how much does not matter.
  std::vector<BatchShape> priced_shapes;
  double tokens_per_sample = 0;  ///< PredictionSummary::tokens_per_sample
  /// The batches of the first epoch one of which needs most memory, whatever the model. None for a
  /// played plan.
  std::vector<EpochBatch> largest_of_epoch;
  std::int64_t longest_of_epoch = 0;  ///< Tokens of its longest batch, padding included.

  /// One micro-batch by its number.
  [[nodiscard]] const RunBatch& batch(std::size_t number) const {
    return different[batches[number]];
  }
};

/// Plans the steps of a scenario, whose attention is the policy's. Takes and raises what
/// plan_steps() does.
[[nodiscard]] PlannedRun plan_run(const Scenario& scenario,
                                  const BatchingPolicy& policy,
                                  const PlanningCost& cost,
                                  KnownLengths& known,
                                  std::shared_ptr<const PlannedData> data);

/// How often plan_run() has been called, for tests.
[[nodiscard]] std::int64_t runs_planned();

/// The shape that caches know a batch by: of varlen attention its tokens alone.
[[nodiscard]] BatchShape cached_shape(const Scenario& scenario, const BatchShape& batch);

/// The cached shapes of the first epoch, by step, rank and micro-batch; a rank that has fewer
/// batches than others has none without samples at its end. Empty for a played plan.
[[nodiscard]] std::vector<BatchShape> epoch_shapes(const Scenario& scenario,
                                                   const BatchingPolicy& policy,
                                                   const PlannedData& planned);

}  // namespace stepsim

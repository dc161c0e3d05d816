#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "costmodel/compute/cost_model.h"
#include "costmodel/records/profile.h"
#include "sim/predict/run/planned_run.h"
#include "sim/predict/step_lowering.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The third stage of a run: what the ops of each different shape cost, and DDP's own work beside
/// them. It holds whatever its lowering refers to.
class PricedBatches {
 public:
  /// `scenario`: the one that was planned. Raises InputError: the profile has no cost for an op, or
  /// refuses it.
  PricedBatches(const Scenario& scenario,
                std::shared_ptr<const Profile> profile,
                const PlannedRun& planned);
  PricedBatches(const PricedBatches&) = delete;
  PricedBatches& operator=(const PricedBatches&) = delete;

  [[nodiscard]] const CostModel& costs() const { return *costs_; }
  /// The lowering whose ops are priced. Runs take copies, to which they add their own work.
  [[nodiscard]] const StepLowering& lowering() const { return lowering_; }
  /// [PlannedRun::priced_shapes]
  [[nodiscard]] const std::vector<PricedBatch>& prices() const { return prices_; }
  /// What the kernels of a micro-batch take, one after another: the mean over ranks and steps.
  [[nodiscard]] double kernel_seconds() const { return kernel_seconds_; }

 private:
  Scenario scenario_;
  std::shared_ptr<const Profile> profile_;
  std::unique_ptr<CostModel> costs_;
  StepLowering lowering_;
  std::vector<PricedBatch> prices_;
  double kernel_seconds_ = 0;
};

/// How many there have been, for tests.
[[nodiscard]] std::int64_t batches_priced();

}  // namespace stepsim

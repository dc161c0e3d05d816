#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "calibrate/cuda/collectives/nccl_group.h"
#include "calibrate/cuda/device/device_monitor.h"
#include "calibrate/cuda/ops/op_runner.h"
#include "calibrate/cuda/timing/collective_timer.h"
#include "calibrate/cuda/timing/op_timer.h"
#include "calibrate/cuda/timing/overlap_probe.h"
#include "calibrate/measure/backend.h"

namespace stepsim::cuda {

/// Which device a rank works on, and with whom.
struct RankPlace {
  int device = 0;
  int rank = 0;
  int ranks = 1;
  std::string unique_id;   ///< From nccl_unique_id(), the same on all ranks; not for one rank.
  OverlapSetting overlap;  ///< For overlaps(), which fills in the bytes.
};

/// Makes the rank's device the process's, before anything is allocated on it.
struct DeviceChoice {
  explicit DeviceChoice(int device) { use_device(device); }
};

/// One rank of the CUDA backend: the ops of a model on its own device, one at a time, and NCCL's
/// collectives.
class CudaBackend : public Backend {
 public:
  /// `buckets` are parameter indices in launch order. Raises InputError (model), EnvironmentFault.
  CudaBackend(const TransformerConfig& model,
              const std::vector<std::vector<int>>& buckets,
              const RankPlace& place);

  [[nodiscard]] const StepOpKinds& ops() const override { return kinds_; }
  /// Builds the plans of fused attention for these batches, on all cores, and runs every op once at
  /// each shape that was not met before, the largest first: buffers grow and kernels are loaded
  /// now, not behind a held stream. Refuses shapes without a plan or without the memory.
  [[nodiscard]] std::vector<RefusedBatch> prepare(std::span<const BatchLengths> batches) override;
  /// By the device's clock, but Collate, which is the host's. Repeats it, a few times at most,
  /// while heat holds the clock down, and while a hold of the stream ends too soon: then the time
  /// is dropped.
  [[nodiscard]] std::optional<double> time_op(const Op& op, const BatchLengths& lengths) override;
  [[nodiscard]] std::vector<PreparedPlan> prepared_plans() const override;
  [[nodiscard]] Disturbances disturbances() const override { return disturbances_; }
  [[nodiscard]] std::vector<CollectiveKind> collectives() const override {
    return cuda_collectives();
  }
  /// Times collectives in the dtype of the gradients by the device's clock (CollectiveTimer).
  [[nodiscard]] CollectiveTimes time_collective(CollectiveKind kind,
                                                Bytes bytes,
                                                int calls) override;
  [[nodiscard]] std::vector<OverlapSample> overlaps(Bytes bytes) override;
  void barrier() override;
  [[nodiscard]] Json description() const override;
  [[nodiscard]] std::optional<HostCosts> host_costs() override;

 private:
  /// Nothing when a hold ended too soon. Sets hot_.
  [[nodiscard]] std::optional<double> time_once(const Op& op);
  /// Runs the ops of a batch that nothing is known of. Returns why they cannot run, or nothing.
  /// Raises EnvironmentFault when the device is of no use any more.
  [[nodiscard]] std::string first_run(const BatchLengths& lengths);
  /// Gives a reason to every batch that another rank has one for.
  void agree(std::vector<std::string>& reasons);

  DeviceChoice device_;
  DeviceInfo info_;
  DeviceMonitor monitor_;
  TransformerConfig model_;
  StepOpKinds kinds_;
  OpRunner runner_;
  NcclGroup group_;
  Stream communication_;
  OverlapSetting overlap_;
  /// Whether heat held the clock down during the last time_once(): asked while the device was at
  /// work, since an idle one gives no reason.
  bool hot_ = false;
  OpTimer timer_;
  Dtype gradient_dtype_;
  CollectiveTimer collective_timer_;
  /// Samples, padded length and useful tokens of a batch.
  using MetShape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  std::map<MetShape, std::string> met_;  ///< Shapes that prepare() knows, and why one cannot run.
  Disturbances disturbances_;
};

}  // namespace stepsim::cuda

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "calibrate/cuda/collectives/nccl_group.h"
#include "calibrate/cuda/collectives/nccl_reducer.h"
#include "calibrate/cuda/collectives/stand_in_reducer.h"
#include "calibrate/cuda/device/device_monitor.h"
#include "calibrate/cuda/timing/collective_timer.h"
#include "calibrate/cuda/timing/op_clock.h"
#include "calibrate/cuda/timing/overlap_probe.h"
#include "calibrate/cuda/training/training_device.h"
#include "calibrate/measure/backend.h"

namespace stepsim::cuda {

/// Which device a rank works on, and with whom.
struct RankPlace {
  int device = 0;
  int rank = 0;
  int ranks = 1;
  std::string unique_id;   ///< From nccl_unique_id(), the same on all ranks; not for one rank.
  StandInShape stand_in;   ///< How the collectives of emulated ranks occupy the device.
  OverlapSetting overlap;  ///< For overlaps(), which fills in the bytes and the traffic.
};

/// Makes the rank's device the process's, before anything is allocated on it.
struct DeviceChoice {
  explicit DeviceChoice(int device) { use_device(device); }
};

/// One rank of the CUDA backend: a trainer on its own device and the all-reduce of its buckets by
/// NCCL. A live step ends when the device is done with it, as in a loop that reads the loss.
class CudaBackend : public Backend {
 public:
  /// `buckets` are parameter indices in launch order; an empty list means one bucket of all
  /// parameters.
  /// Raises InputError (model, buckets), EnvironmentFault.
  CudaBackend(const TransformerConfig& model,
              const std::vector<std::vector<int>>& buckets,
              const RankPlace& place);

  [[nodiscard]] const std::vector<Op>& ops() const override { return trainer_.ops(); }
  /// Runs two steps: one with an event behind every op, and one with events at whole chunks only.
  /// The times of the second scale those of the first. Repeats both, a few times at most, while
  /// heat holds the clock down, and while a hold of the stream ends too soon: then they are
  /// dropped.
  [[nodiscard]] std::vector<double> time_step(std::span<const std::int64_t> lengths) override;
  /// Builds the plans of fused attention for these batches, on all cores, and runs an untimed step
  /// of each shape that was not met before, the largest first: buffers grow and kernels are loaded
  /// now, not behind a held stream. Refuses shapes without a plan or without the memory.
  [[nodiscard]] std::vector<RefusedBatch> prepare(std::span<const StepBatch> batches) override;
  void warm_up(std::span<const std::int64_t> /*lengths*/) override {}
  [[nodiscard]] std::vector<PreparedPlan> prepared_plans() const override;
  [[nodiscard]] Disturbances disturbances() const override { return disturbances_; }
  [[nodiscard]] std::vector<CollectiveKind> collectives() const override {
    return cuda_collectives();
  }
  /// Times collectives in the dtype of the gradients by the device's clock (CollectiveTimer).
  [[nodiscard]] CollectiveTimes time_collective(CollectiveKind kind,
                                                Bytes bytes,
                                                int calls) override;
  [[nodiscard]] TrainedStep train_step(std::span<const std::int64_t> lengths,
                                       double loss_scale,
                                       std::int64_t padded_length) override;
  [[nodiscard]] TrainedStep emulate_step(std::span<const std::int64_t> lengths,
                                         double loss_scale,
                                         std::int64_t padded_length,
                                         std::span<const StandIn> collectives) override;
  void set_buckets(const std::vector<std::vector<int>>& buckets) override;
  [[nodiscard]] std::vector<OverlapSample> overlaps(Bytes bytes) override;
  void barrier() override;
  [[nodiscard]] Json description() const override;
  [[nodiscard]] std::optional<HostCosts> host_costs() override;

 private:
  /// Empty when a hold ended too soon. Sets hot_.
  [[nodiscard]] std::vector<double> time_once(std::span<const std::int64_t> lengths);
  /// [batch] Why its attention has no plan; empty where it has one.
  [[nodiscard]] std::vector<std::string> plan_attention(std::span<const BatchSize> sizes);
  /// Runs a step that nothing is known of. Returns why it cannot run, or nothing. Raises
  /// EnvironmentFault when the device is of no use any more.
  [[nodiscard]] std::string first_step(const StepBatch& batch);
  /// Gives a reason to every batch that another rank has one for.
  void agree(std::vector<std::string>& reasons);
  [[nodiscard]] TrainedStep run_step(std::span<const std::int64_t> lengths,
                                     double loss_scale,
                                     std::int64_t padded_length,
                                     StreamReducer& reducer);

  DeviceChoice device_;
  DeviceInfo info_;
  DeviceMonitor monitor_;
  Trainer trainer_;
  NcclGroup group_;
  NcclReducer reducer_;
  StandInShape stand_in_shape_;
  TransformerConfig model_;
  OverlapSetting overlap_;
  std::optional<StandInReducer> stand_in_;  ///< Made when the first step is emulated.
  OpClock clock_;
  /// Whether heat held the clock down during the last time_once(): asked while the device was at
  /// work, since an idle one gives no reason.
  bool hot_ = false;
  std::string attention_;  ///< Names the kernels of the model's attention.
  Dtype gradient_dtype_;
  CollectiveTimer collective_timer_;
  /// Samples, padded length and rows of a batch, and whether it has padding.
  using MetShape = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool>;
  std::map<MetShape, std::string> met_;  ///< Shapes that prepare() knows, and why one cannot run.
  Disturbances disturbances_;
};

}  // namespace stepsim::cuda

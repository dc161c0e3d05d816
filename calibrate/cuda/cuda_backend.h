#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
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
  std::string unique_id;   ///< From nccl_unique_id(), the same on all ranks.
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
  /// heat holds the clock down.
  [[nodiscard]] std::vector<double> time_step(std::span<const std::int64_t> lengths) override;
  /// Builds the plans of fused attention for these batches, on all cores.
  void prepare(std::span<const StepBatch> batches) override;
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
  [[nodiscard]] std::vector<double> time_once(std::span<const std::int64_t> lengths);
  [[nodiscard]] bool throttled() const;
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
  std::string attention_;  ///< Names the kernels of the model's attention.
  Dtype gradient_dtype_;
  CollectiveTimer collective_timer_;
};

}  // namespace stepsim::cuda

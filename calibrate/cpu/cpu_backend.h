#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calibrate/cpu/gloo_group.h"
#include "calibrate/cpu/gloo_reducer.h"
#include "calibrate/cpu/training_device.h"
#include "calibrate/measure/backend.h"

namespace stepsim {

/// The processor's name as the system reports it, or "unknown processor".
[[nodiscard]] std::string processor_name();

/// One rank of the CPU backend: a trainer and the all-reduce of its buckets.
class CpuBackend : public Backend {
 public:
  /// `buckets` are parameter indices in launch order; an empty list means one bucket of all
  /// parameters. `folder` is for the rendezvous of this group only. Raises InputError (model,
  /// buckets), EnvironmentFault.
  CpuBackend(const TransformerConfig& model,
             const std::vector<std::vector<int>>& buckets,
             int rank,
             int ranks,
             const std::string& folder);

  [[nodiscard]] const std::vector<Op>& ops() const override { return trainer_.ops(); }
  [[nodiscard]] std::vector<double> time_step(std::span<const std::int64_t> lengths) override;
  /// gloo offers the all-reduce only.
  [[nodiscard]] std::vector<CollectiveKind> collectives() const override {
    return {CollectiveKind::AllReduce};
  }
  /// Times fp32 all-reduces through the reducer's thread, as in a step.
  [[nodiscard]] CollectiveTimes time_collective(CollectiveKind kind,
                                                Bytes bytes,
                                                int calls) override;
  [[nodiscard]] TrainedStep train_step(std::span<const std::int64_t> lengths,
                                       double loss_scale,
                                       std::int64_t padded_length) override;
  void set_buckets(const std::vector<std::vector<int>>& buckets) override {
    trainer_.set_buckets(buckets);
  }
  void barrier() override;
  /// Describes what produced the numbers: the processor, the compiler and the vector instructions
  /// of the kernels, and the versions of Eigen and gloo.
  [[nodiscard]] Json description() const override;

 private:
  cpu::Trainer trainer_;
  GlooGroup group_;
  GlooReducer reducer_;
  std::vector<float> message_;
};

}  // namespace stepsim

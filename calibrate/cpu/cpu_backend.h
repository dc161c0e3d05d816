#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "calibrate/cpu/gloo_group.h"
#include "calibrate/cpu/gloo_reducer.h"
#include "calibrate/cpu/trainer.h"
#include "calibrate/measure/backend.h"

namespace stepsim {

/// The processor's name as the system tells it, "unknown processor" when it does not.
[[nodiscard]] std::string processor_name();

/// One rank of the CPU backend: a trainer and the all-reduce of its buckets.
class CpuBackend : public Backend {
 public:
  /// `buckets` are parameter indices in launch order; empty = one bucket of all. `folder` is for
  /// the rendezvous of this group only. Raises InputError (model, buckets), EnvironmentFault.
  CpuBackend(const TransformerConfig& model,
             const std::vector<std::vector<int>>& buckets,
             int rank,
             int ranks,
             const std::string& folder);

  [[nodiscard]] const std::vector<Op>& ops() const override { return trainer_.ops(); }
  [[nodiscard]] std::vector<double> time_step(std::span<const std::int64_t> lengths) override;
  /// gloo's all-reduce only.
  [[nodiscard]] std::vector<CollectiveKind> collectives() const override {
    return {CollectiveKind::AllReduce};
  }
  /// Through the reducer's thread, as in a step; fp32.
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
  /// What produced the numbers: processor, compiler and instructions of the kernels, Eigen, gloo.
  [[nodiscard]] Json description() const override;

 private:
  Trainer trainer_;
  GlooGroup group_;
  GlooReducer reducer_;
  std::vector<float> message_;
};

}  // namespace stepsim

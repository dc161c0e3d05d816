#pragma once

#include <string>
#include <vector>

#include "calibrate/cpu/gloo_group.h"
#include "calibrate/measure/backend.h"

namespace stepsim {

/// One rank of the CPU backend: gloo's collectives, in fp32. It times no ops, which PyTorch does.
class CpuBackend : public Backend {
 public:
  /// `folder` is for the rendezvous of this group only. Raises EnvironmentFault.
  CpuBackend(int rank, int ranks, const std::string& folder) : group_(rank, ranks, folder) {}

  [[nodiscard]] const StepOpKinds& ops() const override { return none_; }
  [[nodiscard]] std::optional<double> time_op(const Op& /*op*/,
                                              const BatchLengths& /*lengths*/) override {
    return std::nullopt;
  }
  [[nodiscard]] std::vector<CollectiveKind> collectives() const override;
  [[nodiscard]] CollectiveTimes time_collective(CollectiveKind kind,
                                                Bytes bytes,
                                                int calls) override;
  void barrier() override { group_.barrier(); }
  /// Names the processor and the version of gloo.
  [[nodiscard]] Json description() const override;

 private:
  StepOpKinds none_;
  GlooGroup group_;
  std::vector<float> message_;
};

}  // namespace stepsim

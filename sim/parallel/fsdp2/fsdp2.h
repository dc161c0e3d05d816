#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/parallel/parallelism.h"

namespace stepsim {

/// FSDP2, PyTorch's fully_shard: parameters, gradients and the optimizer's state are sharded; each
/// unit is gathered before it computes and its gradients are reduce-scattered. With replicas it is
/// HSDP.
class Fsdp2 : public Parallelism {
 public:
  [[nodiscard]] std::string_view name() const override { return "fsdp2"; }
  [[nodiscard]] std::string meaning() const override {
    return "PyTorch's `fully_shard`: each unit's parameters are gathered before it computes, and "
           "its gradients reduce-scattered; with `replicas` HSDP";
  }
  [[nodiscard]] std::string_view units_sweep() const override {
    return "parallel.units=blocks,ends,model";
  }
  [[nodiscard]] std::vector<OwnKey> keys() const override;
  [[nodiscard]] std::optional<KeyRefusal> refusal(const ParallelJob& job) const override;
  [[nodiscard]] ParallelFacts facts(const ParallelJob& job) const override;
  [[nodiscard]] BucketLists buckets(const ParallelJob& job) const override;
  [[nodiscard]] ParallelParts parts(const ParallelJob& job, const StepOps& ops) const override;
  [[nodiscard]] StepProgram program(const ParallelJob& job,
                                    const ParallelParts& parts,
                                    const StepHost& host,
                                    const StepPrices& prices,
                                    const StepWork& step) const override;
  [[nodiscard]] MemoryOptions memory(const ParallelJob& job) const override;
  [[nodiscard]] HeldCurve memory_curve(const ParallelJob& job, const StepOps& ops) const override;
  [[nodiscard]] std::vector<std::string> assumptions(const ParallelJob& job) const override;
  [[nodiscard]] std::vector<TunedKey> tuned_keys(const ParallelJob& job) const override;
  [[nodiscard]] std::vector<GradientWork> gradient_work(const ParallelJob& job,
                                                        const StepOps& ops) const override;
};

[[nodiscard]] const Parallelism& fsdp2();

}  // namespace stepsim

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/parallel/parallelism.h"

namespace stepsim {

/// FSDP1, PyTorch's FullyShardedDataParallel: the parameters of a wrapped module are one
/// FlatParameter, which is gathered before the module computes and whose gradient is
/// reduce-scattered.
class Fsdp1 : public Parallelism {
 public:
  [[nodiscard]] std::string_view name() const override { return "fsdp1"; }
  [[nodiscard]] std::string meaning() const override {
    return "PyTorch's `FullyShardedDataParallel`, which wraps units and flattens their parameters";
  }
  [[nodiscard]] std::string_view units_sweep() const override {
    return "parallel.units=blocks,model";
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
  [[nodiscard]] std::vector<GradientWork> gradient_work(const ParallelJob& job,
                                                        const StepOps& ops) const override;
};

[[nodiscard]] const Parallelism& fsdp1();

}  // namespace stepsim

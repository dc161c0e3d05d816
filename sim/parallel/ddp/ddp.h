#pragma once

#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/parallelism.h"

namespace stepsim {

/// PyTorch's DistributedDataParallel, also with an optimizer that is sharded (ZeRO-1) and gradients
/// that are (ZeRO-2).
class Ddp : public Parallelism {
 public:
  [[nodiscard]] std::string_view name() const override { return "ddp"; }
  [[nodiscard]] ParallelFacts facts(const ParallelJob& job) const override;
  [[nodiscard]] BucketLists buckets(const ParallelJob& job) const override;
  [[nodiscard]] ParallelParts parts(const ParallelJob& job, const StepOps& ops) const override;
  [[nodiscard]] StepProgram program(const ParallelJob& job,
                                    const ParallelParts& parts,
                                    const StepHost& host,
                                    const StepPrices& prices,
                                    const StepWork& step) const override;
  [[nodiscard]] MemoryOptions memory(const ParallelJob& job) const override;
  [[nodiscard]] ReduceBound reduce_bound(const ParallelJob& job,
                                         const ParallelParts& parts,
                                         const BoundPrices& prices) const override;
  [[nodiscard]] std::vector<GradientWork> gradient_work(const ParallelJob& job,
                                                        const StepOps& ops) const override;

 private:
  static void add_bounds(const ParallelJob& job, ParallelFacts& facts);
};

[[nodiscard]] const Parallelism& ddp();

}  // namespace stepsim

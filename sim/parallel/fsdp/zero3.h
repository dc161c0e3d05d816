#pragma once

#include "sim/parallel/ddp/ddp.h"

namespace stepsim {

/// ZeRO-3: a module that is wrapped as by DDP, whose parameters are sharded, too. Reports list the
/// buckets that DDP would have; what is gathered and scattered are the layers.
class Zero3 : public Ddp {
 public:
  [[nodiscard]] std::string_view name() const override { return "zero3"; }
  [[nodiscard]] std::string meaning() const override {
    return "parameters are sharded, too, and gathered layer by layer, as by no library; "
           "`ddp.zero_stage = 3` is the same";
  }
  [[nodiscard]] std::optional<KeyRefusal> refusal(const ParallelJob& job) const override;
  [[nodiscard]] ParallelFacts facts(const ParallelJob& job) const override;
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
};

[[nodiscard]] const Parallelism& zero3();

}  // namespace stepsim

#pragma once

#include <array>

#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/parallelism.h"

namespace stepsim {

/// PyTorch's DistributedDataParallel, also with an optimizer that is sharded (ZeRO-1) and gradients
/// that are (ZeRO-2).
class Ddp : public Parallelism {
 public:
  [[nodiscard]] std::string_view name() const override { return "ddp"; }
  [[nodiscard]] std::string meaning() const override {
    return "DDP, with or without shards of the optimizer and of gradients (`ddp.zero_stage` up to "
           "2)";
  }
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
  [[nodiscard]] ReduceBound reduce_bound(const ParallelJob& job,
                                         const ParallelParts& parts,
                                         const BoundPrices& prices) const override;
  [[nodiscard]] std::vector<GradientWork> gradient_work(const ParallelJob& job,
                                                        const StepOps& ops) const override;
  [[nodiscard]] std::vector<TunedKey> tuned_keys(const ParallelJob& job) const override;
  [[nodiscard]] PlanDdp plan_header(const ParallelJob& job) const override;

 protected:
  [[nodiscard]] static KeyRefusal unused_refusal(const DdpOptions& ddp);
  [[nodiscard]] static KeyRefusal compile_refusal(const DdpOptions& ddp);
  [[nodiscard]] static KeyRefusal reducer_refusal(bool holds);
  [[nodiscard]] static KeyRefusal batched_copy_refusal(const DdpOptions& ddp);
  /// Refuses an optimizer in the backward, mixed precision, hooks and join() beside shards.
  [[nodiscard]] static std::array<KeyRefusal, 4> sharding_refusals(const DdpOptions& ddp);

 private:
  static void add_bounds(const ParallelJob& job, ParallelFacts& facts);
};

[[nodiscard]] const Parallelism& ddp();

}  // namespace stepsim

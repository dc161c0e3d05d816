#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/parallel/parallelism.h"

namespace stepsim {

/// ZeRO-3 as DeepSpeed runs it: each module gathers its own parameters, later ones are prefetched
/// once the order of modules is known, and gradients are reduced by buckets of a size.
class DeepSpeedZero : public Parallelism {
 public:
  [[nodiscard]] std::string_view name() const override { return "zero"; }
  [[nodiscard]] std::string meaning() const override {
    return "DeepSpeed's ZeRO-3: parameters are sharded and gathered module by module, and "
           "gradients "
           "reduced by buckets; its keys have DeepSpeed's names and defaults";
  }
  [[nodiscard]] std::string_view units_sweep() const override {
    return "parallel.stage3_prefetch_bucket_size=0,50000000,500000000";
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
  [[nodiscard]] std::vector<TunedKey> tuned_keys(const ParallelJob& job) const override;
  [[nodiscard]] std::vector<std::string> assumptions(const ParallelJob& job) const override;
  [[nodiscard]] std::vector<GradientWork> gradient_work(const ParallelJob& job,
                                                        const StepOps& ops) const override;
};

[[nodiscard]] const Parallelism& deepspeed_zero();

}  // namespace stepsim

#include "sim/parallel/fsdp/zero3.h"

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/fsdp/layer_units.h"
#include "sim/parallel/fsdp/zero3_program.h"

namespace stepsim {

std::optional<KeyRefusal> Zero3::refusal(const ParallelJob& job) const {
  const DdpOptions& ddp = job.ddp;
  const auto [in_backward, mixed, hook, join] = sharding_refusals(ddp);
  return first_refusal(
      {unused_refusal(ddp),
       in_backward,
       mixed,
       hook,
       {!ddp.overlap,
        "overlap",
        "has no effect with zero_stage = 3, which reduces the gradients of a layer as soon as they "
        "are ready"},
       join,
       compile_refusal(ddp),
       reducer_refusal(ddp.optimize_ddp != OptimizeDdp::Eager),
       batched_copy_refusal(ddp)});
}

ParallelFacts Zero3::facts(const ParallelJob& job) const {
  ParallelFacts facts = Ddp::facts(job);
  facts.repeats = false;  // Gathers are nothing that the recurrence knows.
  facts.own_work = {};
  facts.fixed_units = "ddp.zero_stage = 3 gathers and scatters by layer";
  return facts;
}

ParallelParts Zero3::parts(const ParallelJob& job, const StepOps& ops) const {
  ParallelParts parts = Ddp::parts(job, ops);
  add_layer_units(job.model, ops, parts.model);
  return parts;
}

StepProgram Zero3::program(const ParallelJob& job,
                           const ParallelParts& parts,
                           const StepHost& host,
                           const StepPrices& prices,
                           const StepWork& step) const {
  return zero3_program(parts.model, parts.buckets, job.ddp, host, prices, step);
}

/// What is reduced at a time has the size of a bucket, whatever its rule.
MemoryOptions Zero3::memory(const ParallelJob& job) const {
  MemoryOptions memory;
  memory.gradient_as_bucket_view = job.ddp.gradient_as_bucket_view;
  memory.optimizer_shards = memory.gradient_shards = memory.parameter_shards = job.ranks;
  memory.working_bucket = job.ddp.bucket_cap;
  memory.gathered = largest_layer(job.model);
  return memory;
}

/// Each micro-batch gathers all units in its forward, and all but the root again in its
/// backward, whose gradients are scattered in the last one.
ReduceBound Zero3::reduce_bound(const ParallelJob& job,
                                const ParallelParts& parts,
                                const BoundPrices& prices) const {
  const TrainedModel& model = parts.model;
  ReduceBound bound;
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
    if (model.units[unit].empty()) {
      continue;
    }
    const auto bytes = static_cast<double>(sum_of(model.units[unit], [&](const int parameter) {
      return model.parameters[at(parameter)].bytes;
    }));
    const int gathers = (unit == 0 ? 1 : 2) * job.ddp.accumulation_steps;
    bound.gather_s += gathers * prices.collective(CollectiveKind::AllGather, bytes);
    bound.buckets.push_back({0, prices.collective(CollectiveKind::ReduceScatter, bytes)});
  }
  return bound;
}

const Parallelism& zero3() {
  static const Zero3 kZero3;
  return kZero3;
}

}  // namespace stepsim

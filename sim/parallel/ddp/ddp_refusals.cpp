#include "sim/parallel/ddp/ddp.h"

namespace stepsim {

KeyRefusal Ddp::unused_refusal(const DdpOptions& ddp) {
  return {!ddp.unused_parameters.empty() && !ddp.find_unused_parameters && !ddp.static_graph,
          "unused_parameters",
          "their buckets would never be complete; torch needs find_unused_parameters = true (or "
          "static_graph) with them"};
}

KeyRefusal Ddp::compile_refusal(const DdpOptions& ddp) {
  return {ddp.optimize_ddp != OptimizeDdp::Eager &&
              (ddp.torch == DdpRules::Torch18 || ddp.torch == DdpRules::Torch113),
          "optimize_ddp",
          "torch.compile needs torch = \"2.4\" or \"newest\""};
}

KeyRefusal Ddp::reducer_refusal(bool holds) {
  return {
      holds, "optimize_ddp", "needs DDP's reducer: bucket_rule = \"pytorch\", zero_stage 0 to 2"};
}

KeyRefusal Ddp::batched_copy_refusal(const DdpOptions& ddp) {
  return {ddp.batched_grad_copy && ddp.torch != DdpRules::Newest,
          "batched_grad_copy",
          "needs torch = \"newest\""};
}

std::array<KeyRefusal, 4> Ddp::sharding_refusals(const DdpOptions& ddp) {
  const bool hooked = ddp.hook != CommunicationHook::None;
  const bool sharded = ddp.zero_stage > 0;
  return {{{ddp.optimizer_in_backward && (hooked || ddp.accumulation_steps > 1 || sharded),
            "optimizer_in_backward",
            "works without a communication hook, accumulation_steps and zero_stage only"},
           {ddp.mixed_param_dtype && (hooked || sharded),
            "mixed_precision",
            "works without a communication hook and zero_stage only"},
           {hooked && ddp.zero_stage > 1,
            "communication_hook",
            "hooks belong to DDP's all-reduce: zero_stage 0 or 1 only"},
           {!ddp.join_steps.empty() && ddp.zero_stage > 1,
            "join",
            "works with zero_stage 0 or 1 only"}}};
}

/// Combinations that torch refuses or that would hang.
std::optional<KeyRefusal> Ddp::refusal(const ParallelJob& job) const {
  const DdpOptions& ddp = job.ddp;
  const auto [in_backward, mixed, hook, join] = sharding_refusals(ddp);
  return first_refusal(
      {unused_refusal(ddp),
       in_backward,
       mixed,
       hook,
       join,
       compile_refusal(ddp),
       reducer_refusal(ddp.optimize_ddp != OptimizeDdp::Eager &&
                       ddp.bucket_rule != BucketRule::PyTorch),
       {ddp.optimize_ddp == OptimizeDdp::DdpOptimizer &&
            ddp.bucket_cap.value() < kDefaultFirstBucketBytes,
        "optimize_ddp",
        "DDPOptimizer fails with a bucket_cap below 1 MiB, the limit of its first graph"},
       batched_copy_refusal(ddp)});
}

}  // namespace stepsim

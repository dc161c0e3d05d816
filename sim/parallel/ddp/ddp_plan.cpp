#include <utility>

#include "sim/parallel/ddp/ddp.h"
#include "sim/parallel/ddp/ddp_buckets.h"

namespace stepsim {

PlanDdp Ddp::plan_header(const ParallelJob& job) const {
  const DdpOptions& ddp = job.ddp;
  PlanDdp told;
  told.bucket_limits = bucket_limits(ddp);
  told.set_to_none = ddp.set_to_none;
  told.gradient_as_bucket_view = ddp.gradient_as_bucket_view;
  told.find_unused_parameters = ddp.find_unused_parameters;
  told.static_graph = ddp.static_graph;
  told.broadcast_buffers = ddp.broadcast_buffers;
  told.communication_hook = name_of(ddp.hook);
  const std::pair<const char*, bool> others[] = {
      {"bucket_rule", ddp.bucket_rule != BucketRule::PyTorch},
      {"last_bucket_cap", ddp.last_bucket_cap},
      {"optimize_ddp", ddp.optimize_ddp != OptimizeDdp::Eager},
      {"overlap", !ddp.overlap},
      {"optimizer_in_backward", ddp.optimizer_in_backward},
      {"unused_parameters", !ddp.unused_parameters.empty()},
      {"join_steps", !ddp.join_steps.empty()},
      {"no_sync", ddp.accumulation_steps > 1 && !ddp.no_sync},
      {"mixed_precision", ddp.mixed_param_dtype || ddp.mixed_reduce_dtype},
      {"zero_stage", ddp.zero_stage > 0}};
  for (const auto& [key, is_set] : others) {
    if (is_set) {
      told.other_keys.emplace_back(key);
    }
  }
  return told;
}

}  // namespace stepsim

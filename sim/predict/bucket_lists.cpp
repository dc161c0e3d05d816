#include "sim/predict/bucket_lists.h"

#include <limits>
#include <numeric>
#include <utility>

#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/iteration.h"

namespace stepsim {

namespace {

/// Buckets that a hand-written loop makes once and for all, in reverse order of registration.
std::vector<Bucket> hand_written(const DdpOptions& ddp,
                                 const std::vector<BucketParameter>& parameters) {
  std::vector<int> order(parameters.size());
  std::iota(order.rbegin(), order.rend(), 0);
  if (ddp.bucket_rule == BucketRule::Single) {
    return {{order, std::numeric_limits<std::int64_t>::max()}};
  }
  const std::int64_t cap = ddp.bucket_rule == BucketRule::PerParameter ? 0 : ddp.bucket_cap.value();
  return before_cap_buckets(parameters, order, cap);
}

/// The limits of the buckets in turn; the last one holds for all others.
std::vector<std::int64_t> bucket_limits(const DdpOptions& ddp) {
  if (ddp.bucket_caps.empty()) {
    return {ddp.first_bucket_cap.value(), ddp.bucket_cap.value()};
  }
  return mapped(ddp.bucket_caps, [](const Bytes cap) { return cap.value(); });
}

}  // namespace

DdpBuckets bucket_lists(const Scenario& scenario) {
  const DdpOptions& ddp = scenario.ddp;
  const auto parameters = bucket_parameters(scenario.model);
  DdpBuckets lists;
  if (ddp.bucket_rule != BucketRule::PyTorch) {
    lists.initial = lists.rebuilt = hand_written(ddp, parameters);
    return lists;
  }
  const std::vector<int> order = ready_order(scenario.model);
  const std::vector<std::int64_t> limits = bucket_limits(ddp);
  const bool never_rebuilt = ddp.find_unused_parameters && !ddp.static_graph;
  const bool limited = never_rebuilt || ddp.torch == "1.8" || !ddp.bucket_caps.empty();
  lists.initial = initial_buckets(parameters, limited, limits);
  lists.rebuilt = never_rebuilt ? lists.initial
                                : rebuilt_buckets(parameters, order, limits, ddp.last_bucket_cap);
  return lists;
}

int first_rebuilt(const DdpOptions& ddp) {
  constexpr int kLatest = 3;
  IterationSequence iterations({ddp.static_graph,
                                ddp.find_unused_parameters,
                                false,
                                ddp.bucket_rule == BucketRule::PyTorch});
  for (int number = 1; number <= kLatest; ++number) {
    if (iterations.next().uses_rebuilt) {
      return number;
    }
  }
  return 0;
}

PlanDdp plan_ddp(const Scenario& scenario) {
  const DdpOptions& ddp = scenario.ddp;
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

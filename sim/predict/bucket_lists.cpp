#include "sim/predict/bucket_lists.h"

#include <limits>
#include <numeric>

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
  std::vector<std::int64_t> limits = {ddp.first_bucket_cap.value(), ddp.bucket_cap.value()};
  if (!ddp.bucket_caps.empty()) {
    limits.clear();
    for (const Bytes cap : ddp.bucket_caps) {
      limits.push_back(cap.value());
    }
  }
  const bool never_rebuilt = ddp.find_unused_parameters && !ddp.static_graph;
  const bool limited = never_rebuilt || ddp.torch == "1.8" || !ddp.bucket_caps.empty();
  lists.initial = initial_buckets(parameters, limited, limits);
  lists.rebuilt = never_rebuilt ? lists.initial
                                : rebuilt_buckets(parameters, order, limits, ddp.last_bucket_cap);
  return lists;
}

}  // namespace stepsim

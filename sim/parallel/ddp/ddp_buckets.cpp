#include "sim/parallel/ddp/ddp_buckets.h"

#include <limits>
#include <numeric>

#include "costmodel/base/mapped.h"
#include "sim/parallel/iteration.h"

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

std::vector<std::int64_t> bucket_limits(const DdpOptions& ddp) {
  if (ddp.bucket_caps.empty()) {
    return {ddp.first_bucket_cap.value(), ddp.bucket_cap.value()};
  }
  return mapped(ddp.bucket_caps, [](const Bytes cap) { return cap.value(); });
}

BucketLists ddp_buckets(const TransformerConfig& model, const DdpOptions& ddp) {
  const auto parameters = bucket_parameters(model);
  BucketLists lists;
  if (ddp.bucket_rule != BucketRule::PyTorch) {
    lists.initial = lists.rebuilt = hand_written(ddp, parameters);
    return lists;
  }
  const std::vector<int> order = ready_order(model);
  const std::vector<std::int64_t> limits = bucket_limits(ddp);
  const bool never_rebuilt = ddp.find_unused_parameters && !ddp.static_graph;
  const bool limited = never_rebuilt || ddp.torch == DdpRules::Torch18 || !ddp.bucket_caps.empty();
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

std::vector<std::string> chosen_bucket_keys(const DdpOptions& options) {
  const DdpOptions usual;
  const std::pair<const char*, bool> keys[] = {
      {"bucket_cap", options.bucket_cap != usual.bucket_cap || !options.bucket_caps.empty()},
      {"first_bucket_cap", options.first_bucket_cap_stated},
      {"last_bucket_cap", options.last_bucket_cap},
      {"bucket_rule", options.bucket_rule != usual.bucket_rule},
      {"overlap", !options.overlap},
      {"find_unused_parameters", options.find_unused_parameters},
      {"static_graph", options.static_graph},
      {"batched_grad_copy", options.batched_grad_copy}};
  std::vector<std::string> chosen;
  for (const auto& [key, differs] : keys) {
    if (differs) {
      chosen.push_back(std::string("ddp.") + key);
    }
  }
  return chosen;
}

}  // namespace stepsim

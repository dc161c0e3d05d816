#include "costmodel/model/bucket_assignment.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "costmodel/base/mapped.h"
#include "costmodel/model/transformer_layout.h"

namespace stepsim {

namespace {

/// What has gathered for one dtype and not yet closed.
struct Pending {
  std::string dtype;
  std::vector<int> parameters;
  std::int64_t bytes = 0;
  std::size_t limit_position = 0;
};

/// Pending tensors by dtype, in the order in which the dtypes first appeared.
class PendingByDtype {
 public:
  Pending& of(const std::string& dtype) {
    const auto found =
        std::ranges::find_if(pending_, [&](const Pending& p) { return p.dtype == dtype; });
    if (found != pending_.end()) {
      return *found;
    }
    return pending_.emplace_back(Pending{dtype, {}, 0, 0});
  }

  /// The buckets that never reached their limit. PyTorch iterates an unordered_map here; with
  /// libstdc++ that is the reverse order of first appearance (a dtype keeps its place after its
  /// buckets closed).
  void append_leftovers(std::span<const std::int64_t> limits, std::vector<Bucket>& out) {
    for (auto p = pending_.rbegin(); p != pending_.rend(); ++p) {
      if (!p->parameters.empty()) {
        out.push_back({std::move(p->parameters), limits[p->limit_position]});
      }
    }
  }

 private:
  std::vector<Pending> pending_;
};

void check_order(std::span<const int> order, std::size_t parameter_count) {
  std::vector<bool> seen(parameter_count, false);
  for (const int index : order) {
    if (index < 0 || static_cast<std::size_t>(index) >= parameter_count) {
      throw std::invalid_argument("assign_buckets: the order names parameter " +
                                  std::to_string(index) + " of " + std::to_string(parameter_count));
    }
    if (seen[static_cast<std::size_t>(index)]) {
      throw std::invalid_argument("assign_buckets: the order names parameter " +
                                  std::to_string(index) + " twice");
    }
    seen[static_cast<std::size_t>(index)] = true;
  }
}

void check_sizes(std::span<const BucketParameter> parameters,
                 std::span<const std::int64_t> limits) {
  if (limits.empty()) {
    throw std::invalid_argument("assign_buckets: no limit");
  }
  if (std::ranges::any_of(limits, [](std::int64_t limit) { return limit < 0; })) {
    throw std::invalid_argument("assign_buckets: a negative limit");
  }
  if (std::ranges::any_of(parameters, [](const auto& p) { return p.bytes < 0; })) {
    throw std::invalid_argument("assign_buckets: a parameter of negative size");
  }
}

int smallest_index(const Bucket& bucket) {
  return *std::ranges::min_element(bucket.parameters);
}

}  // namespace

std::vector<Bucket> assign_buckets(std::span<const BucketParameter> parameters,
                                   std::span<const std::int64_t> limits,
                                   std::span<const int> order) {
  check_sizes(parameters, limits);
  check_order(order, parameters.size());
  PendingByDtype pending;
  std::vector<Bucket> buckets;
  const std::size_t count = order.empty() ? parameters.size() : order.size();
  for (std::size_t i = 0; i < count; ++i) {
    const int index = order.empty() ? static_cast<int>(i) : order[i];
    const BucketParameter& parameter = parameters[static_cast<std::size_t>(index)];
    if (parameter.sparse) {
      buckets.push_back({{index}, 0});
      continue;
    }
    Pending& filling = pending.of(parameter.dtype);
    filling.parameters.push_back(index);
    filling.bytes += parameter.bytes;
    const std::int64_t limit = limits[filling.limit_position];
    if (filling.bytes >= limit) {
      buckets.push_back({std::exchange(filling.parameters, {}), limit});
      filling.bytes = 0;
      filling.limit_position = std::min(filling.limit_position + 1, limits.size() - 1);
    }
  }
  pending.append_leftovers(limits, buckets);
  if (order.empty()) {
    std::ranges::sort(buckets, [](const Bucket& a, const Bucket& b) {
      return smallest_index(a) < smallest_index(b);
    });
  }
  return buckets;
}

std::vector<Bucket> initial_buckets(std::span<const BucketParameter> parameters,
                                    bool limited,
                                    std::int64_t first_bytes,
                                    std::int64_t cap_bytes) {
  return initial_buckets(parameters, limited, std::vector<std::int64_t>{first_bytes, cap_bytes});
}

std::vector<Bucket> initial_buckets(std::span<const BucketParameter> parameters,
                                    bool limited,
                                    std::span<const std::int64_t> limits) {
  static constexpr std::int64_t kUnlimited[] = {std::numeric_limits<std::int64_t>::max()};
  std::vector<Bucket> buckets = assign_buckets(parameters, limited ? limits : kUnlimited, {});
  std::ranges::reverse(buckets);
  return buckets;
}

std::vector<Bucket> rebuilt_buckets(std::span<const BucketParameter> parameters,
                                    std::span<const int> ready_order,
                                    std::int64_t first_bytes,
                                    std::int64_t cap_bytes) {
  return rebuilt_buckets(
      parameters, ready_order, std::vector<std::int64_t>{first_bytes, cap_bytes}, false);
}

std::vector<Bucket> rebuilt_buckets(std::span<const BucketParameter> parameters,
                                    std::span<const int> ready_order,
                                    std::span<const std::int64_t> limits,
                                    bool small_last) {
  if (ready_order.size() != parameters.size()) {
    throw std::invalid_argument("rebuilt_buckets: " + std::to_string(ready_order.size()) +
                                " gradients became ready, but there are " +
                                std::to_string(parameters.size()) + " parameters");
  }
  std::vector<int> order(ready_order.begin(), ready_order.end());
  if (small_last) {
    std::ranges::reverse(order);
  }
  std::vector<Bucket> buckets = assign_buckets(parameters, limits, order);
  if (small_last) {
    std::ranges::reverse(buckets);
  }
  return buckets;
}

std::vector<Bucket> before_cap_buckets(std::span<const BucketParameter> parameters,
                                       std::span<const int> order,
                                       std::int64_t cap_bytes) {
  std::vector<Bucket> buckets;
  std::int64_t filled = 0;
  for (const int index : order) {
    const std::int64_t bytes = parameters[static_cast<std::size_t>(index)].bytes;
    if (buckets.empty() || filled + bytes > cap_bytes) {
      buckets.push_back({{}, cap_bytes});
      filled = 0;
    }
    buckets.back().parameters.push_back(index);
    filled += bytes;
  }
  return buckets;
}

std::int64_t bucket_bytes(const Bucket& bucket, std::span<const BucketParameter> parameters) {
  std::int64_t bytes = 0;
  for (const int index : bucket.parameters) {
    bytes += parameters[static_cast<std::size_t>(index)].bytes;
  }
  return bytes;
}

std::vector<BucketParameter> bucket_parameters(const TransformerConfig& config) {
  return mapped(owned_parameters(config), [](const OwnedParameter& owned) {
    const Parameter& parameter = owned.parameter;
    return BucketParameter{
        parameter.bytes().value(), std::string(name_of(parameter.dtype)), parameter.sparse};
  });
}

}  // namespace stepsim

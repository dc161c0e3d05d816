#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "costmodel/model/transformer.h"

namespace stepsim {

inline constexpr std::int64_t kDefaultFirstBucketBytes = std::int64_t{1} << 20;
inline constexpr std::int64_t kDefaultBucketCapBytes = std::int64_t{25} << 20;

/// A parameter as the reducer sees it. All tensors are on one device, so (dtype, device) is dtype.
struct BucketParameter {
  std::int64_t bytes = 0;
  std::string dtype = "f32";
  bool sparse = false;
};

struct Bucket {
  std::vector<int> parameters;
  std::int64_t limit = 0;  ///< The limit it was filled against: 0 for a sparse bucket, the largest
                           ///< std::int64_t without a limit.
};

/// Fills buckets by DDP's own rule. It takes the tensors in `order` (parameter indices). When
/// `order` is empty it takes them as they were registered, and sorts the buckets by the smallest
/// index in each.
///
/// A tensor is added first; the bucket closes when its sum then reaches the limit. The first limit
/// applies once per dtype, and the last one repeats. Buckets that never closed come last, in
/// reverse order of the dtype's first appearance. Source: the behaviour of
/// compute_bucket_assignment_by_size.
[[nodiscard]] std::vector<Bucket> assign_buckets(std::span<const BucketParameter> parameters,
                                                 std::span<const std::int64_t> limits,
                                                 std::span<const int> order);

/// Returns the buckets that DDP's constructor makes, in launch order. By default and with
/// static_graph they have no limit; with find_unused_parameters the limits are {first, cap}.
[[nodiscard]] std::vector<Bucket> initial_buckets(std::span<const BucketParameter> parameters,
                                                  bool limited,
                                                  std::int64_t first_bytes,
                                                  std::int64_t cap_bytes);
/// Returns the initial buckets with a limit for each bucket in turn; the last limit repeats.
[[nodiscard]] std::vector<Bucket> initial_buckets(std::span<const BucketParameter> parameters,
                                                  bool limited,
                                                  std::span<const std::int64_t> limits);

/// Returns the buckets after the rebuild, in launch order. The rebuild fills them in the order in
/// which gradients became ready.
[[nodiscard]] std::vector<Bucket> rebuilt_buckets(std::span<const BucketParameter> parameters,
                                                  std::span<const int> ready_order,
                                                  std::int64_t first_bytes,
                                                  std::int64_t cap_bytes);

/// Rebuilds with a limit for each bucket in turn; the last limit repeats. `small_last` stands for
/// DDP_SET_LAST_BUCKET_CAP=1: buckets are filled from the other end, so that the bucket with the
/// first limit comes last.
[[nodiscard]] std::vector<Bucket> rebuilt_buckets(std::span<const BucketParameter> parameters,
                                                  std::span<const int> ready_order,
                                                  std::span<const std::int64_t> limits,
                                                  bool small_last);

/// Fills buckets as hand-written training loops do. A tensor joins the bucket unless that would
/// exceed the cap, so that a bucket above the cap holds a single tensor.
[[nodiscard]] std::vector<Bucket> before_cap_buckets(std::span<const BucketParameter> parameters,
                                                     std::span<const int> order,
                                                     std::int64_t cap_bytes);

[[nodiscard]] std::int64_t bucket_bytes(const Bucket& bucket,
                                        std::span<const BucketParameter> parameters);

[[nodiscard]] std::vector<BucketParameter> bucket_parameters(const TransformerConfig& config);

}  // namespace stepsim

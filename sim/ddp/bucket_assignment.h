#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
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
  std::int64_t limit = 0;  ///< The limit it was filled against; 0 for a sparse one, SIZE_MAX as
                           ///< std::numeric_limits<std::int64_t>::max() when unlimited.
};

/// DDP's core routine: tensors taken in `order` (parameter indices; empty = registration order,
/// and then the result is sorted by the smallest index of each bucket).
///
/// A bucket closes when its sum >= its limit, tested after adding; the first limit applies once per
/// dtype, the last one repeats. Leftovers come last, in reverse order of the dtype's first
/// appearance. Source: reference behaviour of compute_bucket_assignment_by_size.
[[nodiscard]] std::vector<Bucket> assign_buckets(std::span<const BucketParameter> parameters,
                                                 std::span<const std::int64_t> limits,
                                                 std::span<const int> order);

/// Buckets of the constructor, in launch order: unlimited (default, static_graph), or limited by
/// {first, cap} with find_unused_parameters.
[[nodiscard]] std::vector<Bucket> initial_buckets(std::span<const BucketParameter> parameters,
                                                  bool limited,
                                                  std::int64_t first_bytes,
                                                  std::int64_t cap_bytes);
/// The same with a limit for each bucket in turn, the last repeating.
[[nodiscard]] std::vector<Bucket> initial_buckets(std::span<const BucketParameter> parameters,
                                                  bool limited,
                                                  std::span<const std::int64_t> limits);

/// Buckets after the rebuild, in launch order, from the order in which gradients became ready.
[[nodiscard]] std::vector<Bucket> rebuilt_buckets(std::span<const BucketParameter> parameters,
                                                  std::span<const int> ready_order,
                                                  std::int64_t first_bytes,
                                                  std::int64_t cap_bytes);

/// The same with a limit for each bucket in turn, the last repeating. `small_last`
/// (DDP_SET_LAST_BUCKET_CAP=1): filled from the other end, so that the bucket with the first limit
/// comes last.
[[nodiscard]] std::vector<Bucket> rebuilt_buckets(std::span<const BucketParameter> parameters,
                                                  std::span<const int> ready_order,
                                                  std::span<const std::int64_t> limits,
                                                  bool small_last);

/// Hand-written buckets: in this order a tensor joins unless the bucket would then exceed the cap,
/// so that only a single tensor is ever larger than it.
[[nodiscard]] std::vector<Bucket> before_cap_buckets(std::span<const BucketParameter> parameters,
                                                     std::span<const int> order,
                                                     std::int64_t cap_bytes);

[[nodiscard]] std::int64_t bucket_bytes(const Bucket& bucket,
                                        std::span<const BucketParameter> parameters);

[[nodiscard]] std::vector<BucketParameter> bucket_parameters(const TransformerConfig& config);

}  // namespace stepsim

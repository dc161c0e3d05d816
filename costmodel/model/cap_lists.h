#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "costmodel/model/bucket_assignment.h"

namespace stepsim {

/// Limits of a bucket, in bytes, that all close it after the same tensor.
struct CapRange {
  std::int64_t smallest = 1;
  std::optional<std::int64_t> largest;  ///< The last of them; none: there is no last one.
  bool operator==(const CapRange&) const = default;
};

/// Returns the limit of a range that takes the fewest characters to write in MiB, the unit of
/// bucket_cap_mb: "25", "0.4", "3.141". Cut off to bytes, as PyTorch does, or rounded, as
/// parse_bytes() does, it lies in the range.
[[nodiscard]] std::string mib_text(const CapRange& range);

/// The buckets that all caps of a range make.
struct CapList {
  CapRange caps;
  std::vector<Bucket> buckets;  ///< In launch order; their limits are those of the smallest cap.
};

/// Returns all lists of buckets that there are over all caps from 1 byte on, ascending. Neighbours
/// differ, and the ranges follow one another without a gap. There are far fewer lists than caps: a
/// list stays as it is until the cap exceeds the smallest of the buckets that it closed.
///
/// Args:
///     fill: The buckets of a cap by DDP's rule (assign_buckets()), with limits that are the cap or
///         do not depend on it.
[[nodiscard]] std::vector<CapList> cap_lists(
    std::span<const BucketParameter> parameters,
    const std::function<std::vector<Bucket>(std::int64_t)>& fill);

/// Returns the limits that make DDP fill these buckets one after another, one range a limit; the
/// last limit repeats, so that the list is as short as it can be. None where no list of positive
/// limits does.
///
/// A bucket closes when its sum reaches its limit. So buckets of one dtype can end after any tensor
/// that has bytes, and the last bucket after any. Several dtypes share the list: their n-th buckets
/// have the n-th limit, which must suit all of them. Sparse tensors have buckets of their own and
/// take no limit. What the limits cannot choose is the order of the buckets: a caller that has
/// several dtypes or sparse tensors compares what assign_buckets() makes of the result.
///
/// Args:
///     buckets: In the order in which they are filled. Their limits do not matter.
[[nodiscard]] std::optional<std::vector<CapRange>> limit_ranges(
    std::span<const BucketParameter> parameters, std::span<const Bucket> buckets);

}  // namespace stepsim

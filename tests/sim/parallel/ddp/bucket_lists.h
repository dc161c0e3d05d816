#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "costmodel/model/bucket_assignment.h"

namespace stepsim::test {

using Lists = std::vector<std::vector<int>>;
using Sizes = std::vector<std::int64_t>;

/// f32 parameters of these bytes.
inline std::vector<BucketParameter> dense(const Sizes& bytes) {
  std::vector<BucketParameter> result;
  for (const std::int64_t size : bytes) {
    result.push_back({size, "f32", false});
  }
  return result;
}

/// count - 1 .. 0.
inline std::vector<int> reversed(std::size_t count) {
  std::vector<int> order(count);
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

/// [bucket] parameters.
inline Lists lists(const std::vector<Bucket>& buckets) {
  Lists result;
  for (const Bucket& bucket : buckets) {
    result.push_back(bucket.parameters);
  }
  return result;
}

/// [bucket] limits.
inline Sizes limits(const std::vector<Bucket>& buckets) {
  Sizes result;
  for (const Bucket& bucket : buckets) {
    result.push_back(bucket.limit);
  }
  return result;
}

}  // namespace stepsim::test

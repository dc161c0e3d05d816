#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/model/bucket_assignment.h"

namespace stepsim {

/// A list of parameters that DDP makes buckets of, without a model.
struct BucketCase {
  std::string name;
  std::vector<BucketParameter> parameters;
  std::vector<int> ready_order;  ///< Indices of all parameters, as their gradients become ready.
  std::int64_t first_bytes = kDefaultFirstBucketBytes;
  std::int64_t cap_bytes = kDefaultBucketCapBytes;
};

/// Reads {"cases": [{"name", "params": [{"bytes", "dtype", "sparse"}], "ready_order",
/// "first_bucket_bytes", "cap_bytes"}]}. Without a ready order the last parameter comes first.
/// Raises InputError; EnvironmentFault: the file cannot be read.
[[nodiscard]] std::vector<BucketCase> read_bucket_cases(const std::string& path);

}  // namespace stepsim

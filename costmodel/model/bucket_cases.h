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
  /// Indices of all parameters, as their gradients become ready; those that no step uses come last.
  std::vector<int> ready_order;
  std::int64_t first_bytes = kDefaultFirstBucketBytes;
  std::int64_t cap_bytes = kDefaultBucketCapBytes;
  std::vector<std::int64_t> cap_list;  ///< A limit for each bucket in turn, in place of these two.

  /// Returns the limits of the buckets in turn; the last one repeats.
  [[nodiscard]] std::vector<std::int64_t> limits() const {
    return cap_list.empty() ? std::vector{first_bytes, cap_bytes} : cap_list;
  }
};

/// Reads {"cases": [{"name", "params": [{"bytes", "dtype", "sparse"}], "ready_order",
/// "unused", "first_bucket_bytes", "cap_bytes", "limits"}]}. Without a ready order the last
/// parameter comes first. `limits` is the list of caps, in place of the two sizes.
/// Unused parameters, which a static graph knows, come after all others in
/// the rebuild, in the order of registration (PyTorch 2.15). Raises InputError, also for a key that
/// is not known; EnvironmentFault: the file cannot be read.
[[nodiscard]] std::vector<BucketCase> read_bucket_cases(const std::string& path);

}  // namespace stepsim

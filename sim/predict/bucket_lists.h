#pragma once

#include <vector>

#include "sim/ddp/bucket_assignment.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// The gradient buckets of a scenario's model, in launch order.
struct BucketLists {
  std::vector<Bucket> initial;  ///< The buckets of the first iteration.
  /// The buckets from the second iteration on. They equal the initial ones with
  /// find_unused_parameters, since DDP does not rebuild its buckets then.
  std::vector<Bucket> rebuilt;
};
[[nodiscard]] BucketLists bucket_lists(const Scenario& scenario);

}  // namespace stepsim

#pragma once

#include <vector>

#include "sim/batching/policy.h"

namespace stepsim {

/// A row of the table of policies.
struct PolicyRow {
  PolicyInfo info;
  BatchingPolicy::Epoch epoch;
  /// Raises InputError where parameters contradict each other.
  void (*check)(const PolicyParameters&) = nullptr;
};

/// Every policy there is. A new one is a function in policies/ and a row.
[[nodiscard]] const std::vector<PolicyRow>& policy_rows();

// Its parts.
[[nodiscard]] std::vector<PolicyRow> library_rows();    ///< Counts, sorting, buckets and budgets.
[[nodiscard]] std::vector<PolicyRow> balancing_rows();  ///< Balanced over ranks, and packed.

}  // namespace stepsim

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/batching/policy.h"

namespace stepsim {

/// Every kind of policy there is. A new kind is a function in this folder and a row of this table.
[[nodiscard]] std::span<const PolicyKind> policy_table();

/// The row of one kind. Raises InputError: there is no such kind (the message names the nearest).
[[nodiscard]] const PolicyKind& policy_kind(std::string_view name);

/// The names of all parameters that any kind takes, in the order of the table.
[[nodiscard]] std::span<const std::string> policy_parameter_names();

/// A family of kinds.
struct PolicyFamily {
  std::string name;
  std::vector<PolicyKind> kinds;
};

/// The table by families, in its order.
[[nodiscard]] std::vector<PolicyFamily> policy_families();

// The parts of the table, by family.
[[nodiscard]] std::vector<PolicyKind> library_policies();    ///< Counts, sorting, buckets, budgets.
[[nodiscard]] std::vector<PolicyKind> balancing_policies();  ///< Batches balanced over the ranks.
[[nodiscard]] std::vector<PolicyKind> packing_policies();    ///< Several samples in a row.
[[nodiscard]] std::vector<PolicyKind> playing_policies();    ///< Batches that are there already.

/// A PolicyKind::token_budget: the value of this parameter, where it is there.
[[nodiscard]] std::function<std::optional<double>(const PolicyParameters&)> value_of(
    std::string parameter);

}  // namespace stepsim

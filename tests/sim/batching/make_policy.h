#pragma once

#include <utility>

#include "sim/batching/policies/policy_table.h"

namespace stepsim::test {

/// The policy that a scenario with this table would have; raises as its reader does.
[[nodiscard]] inline BatchingPolicy make_policy(PolicySpec spec) {
  const PolicyKind& kind = policy_kind(spec.kind);
  return {kind, std::move(spec)};
}

}  // namespace stepsim::test

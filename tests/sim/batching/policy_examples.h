#pragma once

#include <cstdint>
#include <vector>

#include "sim/batching/policies/policy_table.h"

namespace stepsim::test {

/// A policy with parameters, and what it promises on any data set.
struct PolicyExample {
  /// Which samples occur more than once in an epoch: none, those that the sampler repeats to fill
  /// the ranks, those that the policy repeats itself, or those that fill up whole steps.
  enum class Repeats { None, Sampler, Own, Steps };
  /// Whether ranks have equal numbers of batches: whenever their shares are equal, always, or not.
  enum class Steps { LikeShares, Equal, Unequal };

  PolicySpec spec;
  bool loses = false;  ///< Leaves samples out even without drop_last.
  bool crops = false;  ///< The same of parts of samples.
  Repeats repeats = Repeats::Sampler;
  Steps steps = Steps::LikeShares;
  std::int64_t max_padded = 0;   ///< Of a batch (0: no such limit).
  std::int64_t max_samples = 0;  ///< The same.
  std::int64_t max_tokens = 0;   ///< Useful ones; the same.
  bool targets = false;          ///< Needs second lengths.
  bool draws = true;             ///< The seed changes the plan of a shuffled data set.
};

/// One example at least of every kind in policy_table(): about `batch` samples, or batch * longest
/// tokens, a rank and step.
[[nodiscard]] std::vector<PolicyExample> policy_examples(std::int64_t batch, std::int64_t longest);

}  // namespace stepsim::test

#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "sim/batching/epoch_plan.h"

namespace stepsim {

/// What a policy does to training in one epoch, beside its speed.
struct TrainingEffects {
  std::int64_t samples = 0;           ///< In the data set.
  std::int64_t tokens = 0;            ///< The same.
  std::int64_t lost_samples = 0;      ///< In no batch.
  std::int64_t lost_tokens = 0;       ///< Of those.
  std::int64_t cropped_samples = 0;   ///< Used, but not all of their tokens.
  std::int64_t cropped_tokens = 0;    ///< In no batch, of samples that are used.
  std::int64_t split_samples = 0;     ///< Used in several parts.
  std::int64_t repeated_samples = 0;  ///< Uses of samples, or parts, that bring no new token.
  std::int64_t repeated_tokens = 0;   ///< Uses beyond the first of each token.
  /// Uses of samples that alone exceed the token budget of a policy that runs them nevertheless.
  std::int64_t over_budget_samples = 0;
  std::int64_t fewest_steps = 0;  ///< Batches of the rank with least.
  std::int64_t most_steps = 0;    ///< Of the rank with most; ranks with fewer would have to wait.
  /// Mean over steps of ranks * the largest rank's samples / all samples: 1 when every rank holds
  /// as many; what a mean loss over unequal ranks gets wrong without weighting.
  double sample_skew = 1;
  double token_skew = 1;  ///< The same for useful tokens.
  /// Mean distance, as a share of the epoch, between when a sample is used and when the sampler's
  /// order alone would use it: 0 for random batches, about 1/3 for a full sort.
  double displacement = 0;
  /// (samples, padded length) of batches: what a compiler sees. A part of a sample counts as a
  /// sample here and in sample_skew.
  std::int64_t distinct_shapes = 0;
  std::int64_t useful_target_tokens = 0;  ///< Second lengths of all batches; 0: there are none.
  std::int64_t padded_target_tokens = 0;  ///< The same padded: samples * longest of each batch.

  /// 1 - useful / padded target tokens; nothing without targets.
  [[nodiscard]] std::optional<double> target_padding_ratio() const;
};

/// What a batch with a longest sample is padded to.
using PaddedLength = std::function<std::int64_t(std::int64_t)>;

/// The effects of one epoch. Its steps are those that every rank has.
///
/// Args:
///     padded_length: Without it a batch is padded to its longest sample.
///     token_budget: The policy's limit on the tokens of a batch, if it has one.
[[nodiscard]] TrainingEffects training_effects(const EpochPlan& epoch,
                                               const PolicyInput& input,
                                               const PaddedLength& padded_length = {},
                                               std::optional<double> token_budget = {});

}  // namespace stepsim

#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "sim/batching/epoch_plan.h"

namespace stepsim {

/// What a policy does to training in one epoch, apart from its speed.
struct TrainingEffects {
  std::int64_t samples = 0;           ///< SampleIds of the data set.
  std::int64_t tokens = 0;            ///< Tokens of the data set.
  std::int64_t lost_samples = 0;      ///< SampleIds that are in no batch.
  std::int64_t lost_tokens = 0;       ///< The tokens of the lost samples.
  std::int64_t cropped_samples = 0;   ///< SampleIds of which some tokens are in no batch.
  std::int64_t cropped_tokens = 0;    ///< The tokens that cropping lost.
  std::int64_t split_samples = 0;     ///< SampleIds that are used in several parts.
  std::int64_t repeated_samples = 0;  ///< Uses of samples, or parts, that bring no new token.
  std::int64_t repeated_tokens = 0;   ///< Uses beyond the first of each token.
  /// Uses of samples that alone exceed the policy's token budget, but run all the same.
  std::int64_t over_budget_samples = 0;
  std::int64_t fewest_steps = 0;  ///< The batches of the rank with fewest.
  std::int64_t most_steps = 0;  ///< The batches of the rank with most, for which others would wait.
  /// The mean over steps of ranks * the largest rank's samples / all samples. It is 1 when all
  /// ranks hold equally many. Without weighting, the mean of unequal ranks' losses is wrong by
  /// this.
  double sample_skew = 1;
  double token_skew = 1;  ///< That ratio for useful tokens.
  /// The mean distance, as a share of the epoch, between when a sample is used and when the order
  /// of the sampler alone would use it: 0 for random batches, about 1/3 for a full sort.
  double displacement = 0;
  /// The different pairs (samples, padded length) of batches, which a compiler sees. A part of a
  /// sample counts as a sample here and in sample_skew.
  std::int64_t distinct_shapes = 0;
  std::int64_t useful_target_tokens = 0;  ///< The sum of second lengths; 0: there are none.
  std::int64_t padded_target_tokens =
      0;  ///< The sum over batches of samples * longest second length.

  /// 1 - useful / padded target tokens, or nothing without targets.
  [[nodiscard]] std::optional<double> target_padding_ratio() const;
};

/// The length that a batch with this longest sample is padded to.
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

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/batching/epoch_plan.h"
#include "sim/batching/policy_parameters.h"

namespace stepsim {

/// Lhotse's TimeConstraint. A cut's effective duration is d + d^2 / quadratic_duration.
struct LhotseLimit {
  std::optional<double> max_duration;
  std::optional<std::int64_t> max_cuts;
  std::optional<double> quadratic_duration;  ///< Without it the duration is d.
};

/// Fills one batch after another in `order`. A batch is closed when one more cut as long as its
/// longest would exceed a limit, so an incoming longer cut can exceed it. The last batch is left
/// out with drop_last. Source: lhotse, dynamic.py (DynamicCutSampler).
[[nodiscard]] Batches lhotse_cuts(std::span<const std::int64_t> order,
                                  std::span<const std::int64_t> durations,
                                  const LhotseLimit& limit,
                                  bool drop_last);

/// Boundaries of buckets that hold about the same total duration each.
/// Source: lhotse, estimate_duration_buckets.
[[nodiscard]] std::vector<std::int64_t> lhotse_duration_bins(std::vector<std::int64_t> durations,
                                                             std::int64_t num_buckets);

/// Lhotse's DynamicBucketingSampler.
struct LhotseBucketing {
  std::vector<std::int64_t> bins;   ///< Ascending; a duration equal to entry i is in bucket i.
  std::vector<LhotseLimit> limits;  ///< One a bucket, bins.size() + 1, or one for all.
  std::int64_t buffer_size = 20'000;
  bool shuffle = false;  ///< Whether cuts are shuffled inside a bucket.
  bool drop_last = false;
  bool sync_buckets =
      true;  ///< The ranks' batches of one step come from the same bucket if possible.
  std::uint64_t seed = 0;  ///< The sampler's seed plus the epoch.
};

/// The options that the parameters and the sampler state. Bins and limits are left empty.
[[nodiscard]] LhotseBucketing lhotse_bucketing(const PolicyParameters& parameters,
                                               const PolicyInput& input);

/// The batches of all ranks in the order they are drawn: `ranks` in a row for each step.
///
/// Without sync_buckets the epoch can end with samples left over, as Lhotse's does: an empty bucket
/// that is drawn ends it. Source: lhotse, dynamic_bucketing.py.
[[nodiscard]] Batches lhotse_buckets(std::span<const std::int64_t> order,
                                     std::span<const std::int64_t> durations,
                                     const LhotseBucketing& options,
                                     int ranks);

/// Runs DynamicCutSampler over the order of the sampler.
[[nodiscard]] EpochBatches lhotse_dynamic_epoch(const PolicyParameters& parameters,
                                                const PolicyInput& input);

/// Runs DynamicBucketingSampler over the data in its own order. Of the sampler only shuffle, seed
/// and drop_last count.
[[nodiscard]] EpochBatches lhotse_bucketing_epoch(const PolicyParameters& parameters,
                                                  const PolicyInput& input);

/// Raises InputError unless max_duration or max_cuts is there.
void check_lhotse(const PolicyParameters& parameters);

}  // namespace stepsim

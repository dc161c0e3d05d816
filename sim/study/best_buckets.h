#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/progress_callback.h"
#include "costmodel/records/profile.h"
#include "sim/batching/policy.h"
#include "sim/scenario/scenario.h"
#include "sim/study/bucket_choice.h"
#include "sim/study/recommendation.h"

namespace stepsim {

/// DDP's default, the best single cap and the best list of limits.
struct BestBuckets {
  BucketChoice standard;  ///< 25 MiB, the first bucket 1 MiB.
  BucketChoice cap;       ///< The standard, too, where no other cap is faster.
  BucketChoice list;      ///< The cap's buckets, too, where no other list is faster.
  /// What the scenario has, where that makes other buckets than the default.
  std::optional<BucketChoice> own;
  Gain cap_over_standard;
  Gain list_over_standard;
  Gain list_over_cap;
  Gain fastest_over_own;         ///< Of the faster of cap and list; 0 without `own`.
  std::size_t cap_lists = 0;     ///< Different lists of buckets that single caps make.
  std::size_t priced_caps = 0;   ///< Of them, those priced over all steps.
  std::size_t priced_lists = 0;  ///< Lists of limits priced over all steps.
  std::size_t searched = 0;      ///< Steps whose best list was searched for.
  /// Policies of the scenario that stand before this one and do not fit into memory.
  std::vector<std::string> passed_over = {};
  /// The recurrence plays the steps, so that a list searched for is the best of its step.
  bool plain = false;
};

/// Finds the best bucket sizes for one policy of a scenario.
///
/// On up to five steady steps, at the quantiles of their times, each gradient in a bucket of its
/// own and communication free, it looks when gradients are ready. best_partition() then gives the
/// best list of each such step, and partition_time() ranks the lists of all single caps. The best
/// of both are priced over all steps by predict(), with noise those that are still ahead, and the
/// fastest is taken: a list is exactly the best of a step that it was searched for, and over
/// several different steps the best of those priced. Where the recurrence does not play the steps
/// (interference, two collectives at a time, hooks), it chooses the candidates, also with transfers
/// and latencies made longer and shorter, and the engine prices them.
///
/// Single caps go by the rules of the scenario's version of PyTorch, lists by those of "newest".
///
/// Args:
///     noise_runs: PredictOptions::noise_runs of the three predictions that are returned.
/// Raises InputError: the buckets have no effect (one rank, another bucket rule, ZeRO-3, passes
///     that hold the all-reduces) or change when gradients are ready (DDPOptimizer), gradients are
///     sparse or of several dtypes, or the scenario cannot be priced.
[[nodiscard]] BestBuckets best_buckets(const Scenario& scenario,
                                       const BatchingPolicy& policy,
                                       const Profile& profile,
                                       int noise_runs,
                                       const ProgressCallback& on_progress = {});

/// What to set: the list only where it gains enough over the cap, and either over the default. What
/// the scenario has where nothing gains enough over that.
[[nodiscard]] const BucketChoice& chosen_buckets(const BestBuckets& best);

}  // namespace stepsim

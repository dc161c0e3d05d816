#pragma once

#include <cstddef>
#include <vector>

#include "costmodel/records/profile.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// What the collectives of a step take, in seconds. All are bounds from below, but for `warmup_s`.
struct ReduceBound {
  struct Bucket {
    std::size_t op = 0;  ///< The op of the backward that completes it and all before it.
    double seconds = 0;
  };

  bool known = false;  ///< False: this says nothing about the collectives of the setting.
  /// In the order of their reduction, one after another. Where the first steady steps come before
  /// DDP rebuilds its buckets, `seconds` is the mean of all steady steps, with none in those.
  std::vector<Bucket> buckets;
  double initial_s = 0;       ///< In the mean of the steady steps, the buckets before the rebuild,
  double initial_last_s = 0;  ///< and of these the last one.
  double streams = 1;         ///< Collectives at a time: 2 with gloo.
  double gather_s = 0;        ///< Fully sharded training: the parameters, in forward and backward.
  double copy_out_s = 0;      ///< From the last bucket to its gradients.
  double after_s = 0;   ///< Collectives after the optimizer, such as the broadcasts of ZeRO-1.
  double warmup_s = 0;  ///< A step's collectives and copies take at most so long.
};

/// Raises InputError: the profile has no price for a collective.
[[nodiscard]] ReduceBound reduce_bound(const Scenario& scenario, const Profile& profile);

}  // namespace stepsim

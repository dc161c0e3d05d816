#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "costmodel/network/collective_cost.h"

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

/// What a bound is made of, in seconds. Raises InputError where the profile has no price.
struct BoundPrices {
  /// A collective of so many bytes over all ranks.
  std::function<double(CollectiveKind kind, double bytes)> collective;
  /// A copy of so many elements from a bucket to a gradient, on a rank of ordinary speed.
  std::function<double(std::int64_t elements)> copy_out;
  double launch_s = 0;      ///< The host launches one kernel.
  double fastest_rank = 1;  ///< Times that the fastest rank takes longer,
  double slowest_rank = 1;  ///< and the slowest one.
};

/// What a kind's own work adds to the passes of each rank, whatever its units of communication: the
/// claims that tune's bounds rest on. By default there is nothing that is sure.
struct BoundedWork {
  bool ranks_wait = true;    ///< Every step ends with a collective that all ranks wait for.
  bool zeroes = false;       ///< All gradients are zeroed once a step.
  bool copies_in = false;    ///< Each gradient is copied to its bucket when it is ready.
  bool accumulates = false;  ///< It is added to that of the micro-batch before.
  bool updates_all = false;  ///< Every rank updates all parameters after the passes.
};

}  // namespace stepsim

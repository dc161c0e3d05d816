#pragma once

#include <string>
#include <vector>

#include "costmodel/model/batch_shape.h"
#include "costmodel/records/profile.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// What the batches and the computing of a setting come to, whatever its buckets are. All times are
/// seconds, without noise, and means over the steady steps.
///
/// Let f be the forward and b the backward of a rank in one step, o its optimizer, and let R(n) be
/// the end of the last all-reduce of step n, for which all ranks wait. A rank begins step n + 1
/// after R(n) and o, so
///   R(n+1) - R(n) >= max_r (o + f + b) + the last all-reduce,
///   R(n+1) - R(n) >= max_r (o + f) + the sum of all all-reduces,
///   R(n+1) - R(n) >= the sum of all collectives, since a rank has one stream for them,
/// where with accumulation f holds all that is computed before the last backward. In the first
/// steady step only the rank that starts last counts, which is one of them: the smallest.
struct WorkBound {
  std::string refused;       ///< Why this cannot be planned or priced; else empty.
  double useful_tokens = 0;  ///< Per step, over all ranks, as are the samples.
  double samples = 0;
  double compute_s = 0;        ///< o + f + b of the slowest rank.
  double before_reduce_s = 0;  ///< o + f of the slowest rank.
  double host_s = 0;  ///< The launches of a step, where nothing is left out before the steady ones.
  double displacement = 0;  ///< TrainingEffects::displacement.
  std::int64_t lost_samples = 0;
  std::vector<BatchShape> largest;  ///< Shapes of the plan that need most memory, each once.
};

/// Raises nothing for a setting that cannot be: WorkBound::refused says why.
[[nodiscard]] WorkBound work_bound(const Scenario& scenario,
                                   const BatchingPolicy& policy,
                                   const Profile& profile);

/// What the collectives of a step take at least, in seconds; all 0 where that is not known.
struct ReduceBound {
  double gather_s = 0;  ///< Fully sharded training: the parameters, during forward and backward.
  double total_s = 0;   ///< All that is reduced in the last backward.
  double last_s = 0;    ///< The last bucket, which is reduced after the whole backward.
  double after_s = 0;   ///< What follows the optimizer, such as the broadcasts of ZeRO-1.
};

[[nodiscard]] ReduceBound reduce_bound(const Scenario& scenario, const Profile& profile);

/// A step takes no less than this, in seconds, without noise.
[[nodiscard]] double least_step_s(const WorkBound& work, const ReduceBound& reduce);

}  // namespace stepsim

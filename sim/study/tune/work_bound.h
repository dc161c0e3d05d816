#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/model/batch_shape.h"
#include "sim/predict/run/job.h"
#include "sim/study/tune/tune_limits.h"

namespace stepsim {

/// What the batches and the computing of a setting come to, whatever its buckets are. All times are
/// seconds, without noise, and means over the steady steps.
struct WorkBound {
  std::string refused;       ///< Why this cannot be planned or priced; else empty.
  double useful_tokens = 0;  ///< Per step, over all ranks, as are the samples.
  double samples = 0;
  double displacement = 0;          ///< TrainingEffects::displacement.
  double left_out = 0;              ///< Tokens that one epoch has in no batch, as a share of all.
  std::vector<BatchShape> largest;  ///< Shapes of the plan that need most memory, each once.

  /// [op of the last backward] The slowest rank computes at least so long, from the end of the
  /// all-reduces before the step until the op is done. Empty where ranks do not wait for each
  /// other in every step.
  std::vector<double> ready_s;
  /// The slowest host works for so long from the first step on, and the warm-up steps take at most
  /// so long without their collectives; both over the number of the steady steps. Zero where the
  /// recurrence does not play the run, or the host computes.
  double host_s = 0;
  double warmup_s = 0;
  double warmup_share = 0;  ///< Warm-up steps over steady ones.
  double rounding_s = 0;    ///< What rounding each work to nanoseconds may come to.
};

[[nodiscard]] bool meets(const TuneLimits& limits, const WorkBound& work);

/// A setting outside the limits is planned, but not priced: what it takes is left empty. Raises
/// nothing for a setting that cannot be: WorkBound::refused says why.
[[nodiscard]] WorkBound work_bound(const Job& job, const TuneLimits& limits = {});

}  // namespace stepsim

#pragma once

#include <span>
#include <vector>

#include "costmodel/model/batch_shape.h"
#include "costmodel/network/collective_table.h"
#include "costmodel/records/plan_file.h"

namespace stepsim {

/// What a step's backward did not hide of its all-reduces, where the buckets were not recorded: the
/// rest of the step beside the compute of its slowest rank.
struct RecordedExposure {
  double backward_seconds = 0;  ///< That rank's compute in its last micro-batch's backward.
  double exposed_seconds = 0;
  BatchShape batch;  ///< That rank's last micro-batch.
};

/// What one rank's step tells of what its all-reduces left exposed. Seconds.
struct RankExposure {
  double start = 0;
  double wall = 0;     ///< From the start to the end of the backward.
  double compute = 0;  ///< The part of it without waiting.
  double backward = 0;
  BatchShape batch;  ///< Of the last micro-batch.
};

/// The rest of a step beside the compute of its slowest rank, where the ranks' clocks agree: ranks
/// also begin and end a backward at different times. Else what the rank that waited least waited.
[[nodiscard]] RecordedExposure exposure_of(std::span<const RankExposure> ranks);

/// Scales the all-reduces between the plan's ranks so that they leave as much exposed as the steps
/// did; where there are none, adds proportional ones. Their error gains the spread of the factor.
/// Where ranks shared cores, what the all-reduces themselves wait for a core is a part of it.
void scale_to_exposure(std::span<const RecordedExposure> steps,
                       const Plan& plan,
                       double operations_per_byte,
                       std::vector<CollectiveCost>& collectives);

}  // namespace stepsim

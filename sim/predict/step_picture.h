#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "costmodel/base/units.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// What one bucket sends.
struct BucketSize {
  std::int64_t bytes = 0;
  std::int64_t tensors = 0;
};

/// One step of a predicted run, to be drawn.
struct StepPicture {
  int step = 0;
  StepTimeline timeline;
  std::vector<RankStepResult> ranks;  ///< [rank] its row of this step.
  std::vector<BucketSize> buckets;    ///< In launch order.
  std::optional<Bytes> bucket_cap;    ///< None where buckets are not filled up to one cap.
  bool has_units = false;             ///< The buckets are units that are gathered, too.
};

/// Whether the buckets are filled up to ddp.bucket_cap: no list of caps, no rule without one.
[[nodiscard]] bool has_bucket_cap(const Scenario& scenario);
/// Whether that also says where what is reduced ends: not where parallelism has units of its own.
[[nodiscard]] bool is_bucketed_by_cap(const Scenario& scenario);

/// The steady step whose time is the median of all of them (the shorter of two), without the first
/// step of the run where there is another: its buckets are not those of the others.
[[nodiscard]] int median_step(const Prediction& prediction, int warmup_steps);

/// Takes a prediction that kept the timeline of this step alone.
[[nodiscard]] StepPicture step_picture(const Scenario& scenario,
                                       const Prediction& prediction,
                                       int step);

}  // namespace stepsim

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "calibrate/cuda/collectives/reducer.h"
#include "calibrate/measure/backend.h"

namespace stepsim::cuda {

/// Plays the collectives of one rank's buckets with resident kernels; sums nothing.
class StandInReducer : public GradientReducer {
 public:
  explicit StandInReducer(const StandInShape& shape);

  /// `collectives`: in launch order, or empty: buckets are marked only. Forgets the step before,
  /// which must be done.
  void start_step(std::span<const StandIn> collectives);
  void launch(const Stream& compute,
              std::size_t bucket,
              Array data,
              std::int64_t elements) override;
  void wait(const Stream& compute, std::size_t bucket) override;

  [[nodiscard]] const BucketMarks& marks() const { return marks_; }

 private:
  StandInShape shape_;
  Stream stream_;
  DeviceBuffer memory_;  ///< What the stand-ins stream through.
  std::vector<StandIn> collectives_;
  BucketMarks marks_;
};

}  // namespace stepsim::cuda

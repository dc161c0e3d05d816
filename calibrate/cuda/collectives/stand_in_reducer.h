#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "calibrate/cuda/collectives/stream_reducer.h"

namespace stepsim::cuda {

/// Plays the collectives of one rank's buckets with resident kernels; sums nothing.
class StandInReducer : public StreamReducer {
 public:
  StandInReducer(const StandInShape& shape, const Stream& compute);

  /// Starts a step with these collectives in launch order, or without any: then the buckets are
  /// only marked. The device must be done with the step before.
  void start_step(std::span<const StandIn> collectives);

 private:
  void run(std::size_t bucket, Array data, std::int64_t elements) override;

  StandInShape shape_;
  DeviceBuffer memory_;  ///< What the stand-ins stream through.
  std::vector<StandIn> collectives_;
};

}  // namespace stepsim::cuda

#pragma once

#include <cstddef>
#include <cstdint>

namespace stepsim {

/// Takes gradients out of the trainer and brings their sums back. Live runs all-reduce; measuring
/// and tests leave the gradients as they are. Neither function may block the training thread on a
/// device that works through a stream: there both only put work into streams.
template <typename Array>
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;
  /// Starts the bucket's all-reduce. `data` holds its gradients, already divided by the world size.
  /// The trainer calls this in launch order.
  virtual void launch(std::size_t bucket, Array data, std::int64_t elements) = 0;
  /// Work that comes later finds the bucket's sum in place.
  virtual void wait(std::size_t bucket) = 0;
};

}  // namespace stepsim

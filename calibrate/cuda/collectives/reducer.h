#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "calibrate/cuda/device/device.h"

namespace stepsim::cuda {

/// How gradients leave the trainer. Nothing here blocks the host: work is put into streams.
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;
  /// `data` holds the bucket's gradients, already divided by the world size, once `compute` gets
  /// here. Called in launch order.
  virtual void launch(const Stream& compute,
                      std::size_t bucket,
                      Array data,
                      std::int64_t elements) = 0;
  /// Later work of `compute` finds the bucket's sum in place.
  virtual void wait(const Stream& compute, std::size_t bucket) = 0;
};

/// When a bucket was launched and when its collective ended. Seconds since the start of the step.
struct BucketTime {
  std::int64_t bytes = 0;
  double launch = 0;
  double end = 0;
};

/// Marks of the buckets of one step, in launch order; its events are used again in the next.
class BucketMarks {
 public:
  void start_step() { used_ = 0; }
  /// The next bucket's events.
  struct Mark {
    Event launched;
    Event ended;
    std::int64_t bytes = 0;
  };
  Mark& next(std::int64_t bytes);
  [[nodiscard]] const Event& end_of(std::size_t bucket) const { return marks_[bucket].ended; }
  /// The device must be done with all of them.
  [[nodiscard]] std::vector<BucketTime> times(const Event& step_start) const;

 private:
  std::vector<Mark> marks_;
  std::size_t used_ = 0;
};

}  // namespace stepsim::cuda

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "calibrate/cuda/device/device.h"
#include "calibrate/measure/backend.h"
#include "calibrate/training/gradient_reducer.h"

namespace stepsim::cuda {

/// Runs the collectives of the buckets one after the other in its own stream while the compute
/// stream goes on, as DDP's process group does, and marks when each began and ended.
class StreamReducer : public GradientReducer<Array> {
 public:
  explicit StreamReducer(const Stream& compute) : compute_(compute) {}

  /// Forgets the step before. The device must be done with it.
  void start_step() { used_ = 0; }
  void launch(std::size_t bucket, Array data, std::int64_t elements) override;
  void wait(std::size_t bucket) override { compute_.wait(marks_[bucket].ended); }

  [[nodiscard]] const Stream& stream() const { return stream_; }
  /// The buckets of the step in launch order, from `step_start` on. The device must be done with
  /// them.
  [[nodiscard]] std::vector<TrainedStep::Bucket> times(const Event& step_start) const;

 protected:
  /// Puts the bucket's collective into stream().
  virtual void run(std::size_t bucket, Array data, std::int64_t elements) = 0;

 private:
  struct Mark {
    Event launched;
    Event ended;
    std::int64_t bytes = 0;
  };
  const Stream& compute_;
  Stream stream_;
  std::vector<Mark> marks_;  ///< In launch order; the next step uses their events again.
  std::size_t used_ = 0;
};

}  // namespace stepsim::cuda

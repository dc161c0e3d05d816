#pragma once

#include "calibrate/cuda/collectives/nccl_group.h"
#include "calibrate/cuda/collectives/reducer.h"

namespace stepsim::cuda {

/// All-reduces buckets in a stream of its own while the compute stream goes on, one after the
/// other, as DDP's process group does.
class NcclReducer : public GradientReducer {
 public:
  explicit NcclReducer(NcclGroup& group) : group_(group), stream_(Stream::Priority::High) {}

  /// Forgets the times of the step before, which must be done.
  void start_step() { marks_.start_step(); }
  void launch(const Stream& compute,
              std::size_t bucket,
              Array data,
              std::int64_t elements) override;
  void wait(const Stream& compute, std::size_t bucket) override;

  [[nodiscard]] const Stream& stream() const { return stream_; }
  [[nodiscard]] const BucketMarks& marks() const { return marks_; }

 private:
  NcclGroup& group_;
  Stream stream_;
  BucketMarks marks_;
};

}  // namespace stepsim::cuda

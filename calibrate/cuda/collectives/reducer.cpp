#include "calibrate/cuda/collectives/reducer.h"

namespace stepsim::cuda {

BucketMarks::Mark& BucketMarks::next(std::int64_t bytes) {
  if (used_ == marks_.size()) {
    marks_.emplace_back();
  }
  Mark& mark = marks_[used_++];
  mark.bytes = bytes;
  return mark;
}

std::vector<BucketTime> BucketMarks::times(const Event& step_start) const {
  std::vector<BucketTime> times;
  for (std::size_t i = 0; i < used_; ++i) {
    const Mark& mark = marks_[i];
    times.push_back({mark.bytes,
                     seconds_between(step_start, mark.launched),
                     seconds_between(step_start, mark.ended)});
  }
  return times;
}

}  // namespace stepsim::cuda

#include "calibrate/cuda/collectives/stream_reducer.h"

namespace stepsim::cuda {

void StreamReducer::launch(std::size_t bucket, Array data, std::int64_t elements) {
  if (used_ == marks_.size()) {
    marks_.emplace_back();
  }
  Mark& mark = marks_[used_++];
  mark.bytes = elements * element_size(data.dtype);
  mark.launched.record(compute_);
  stream_.wait(mark.launched);
  run(bucket, data, elements);
  mark.ended.record(stream_);
}

std::vector<TrainedStep::Bucket> StreamReducer::times(const Event& step_start) const {
  std::vector<TrainedStep::Bucket> times;
  for (std::size_t i = 0; i < used_; ++i) {
    const Mark& mark = marks_[i];
    times.push_back({mark.bytes,
                     seconds_between(step_start, mark.launched),
                     seconds_between(step_start, mark.ended)});
  }
  return times;
}

}  // namespace stepsim::cuda

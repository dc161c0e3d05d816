#include "calibrate/cuda/collectives/nccl_reducer.h"

namespace stepsim::cuda {

void NcclReducer::launch(const Stream& compute,
                         std::size_t /*bucket*/,
                         Array data,
                         std::int64_t elements) {
  BucketMarks::Mark& mark = marks_.next(elements * element_size(data.dtype));
  mark.launched.record(compute);
  stream_.wait(mark.launched);
  group_.all_reduce(stream_, data, elements);
  mark.ended.record(stream_);
}

void NcclReducer::wait(const Stream& compute, std::size_t bucket) {
  compute.wait(marks_.end_of(bucket));
}

}  // namespace stepsim::cuda

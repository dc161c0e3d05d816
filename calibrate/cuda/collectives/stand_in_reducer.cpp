#include "calibrate/cuda/collectives/stand_in_reducer.h"

#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {
namespace {

/// Beyond every L2 cache, so that the traffic is memory's.
constexpr std::size_t kMemory = std::size_t{256} << 20U;

}  // namespace

StandInReducer::StandInReducer(const StandInShape& shape)
    : shape_(shape), stream_(Stream::Priority::High), memory_(shape.traffic > 0 ? kMemory : 0) {
  set_zero(stream_, memory_.data(), memory_.bytes());
}

void StandInReducer::start_step(std::span<const StandIn> collectives) {
  collectives_.assign(collectives.begin(), collectives.end());
  marks_.start_step();
}

void StandInReducer::launch(const Stream& compute,
                            std::size_t bucket,
                            Array data,
                            std::int64_t elements) {
  const std::int64_t bytes = elements * element_size(data.dtype);
  BucketMarks::Mark& mark = marks_.next(bytes);
  mark.launched.record(compute);
  stream_.wait(mark.launched);
  if (!collectives_.empty()) {
    const StandIn& collective = collectives_[bucket];
    const double rate = collective.transfer > 0
                            ? shape_.traffic * static_cast<double>(bytes) / collective.transfer
                            : 0;
    stand_in_collective(stream_,
                        shape_.channels,
                        collective.wait,
                        collective.transfer,
                        memory_.data(),
                        static_cast<std::int64_t>(memory_.bytes()),
                        rate);
  }
  mark.ended.record(stream_);
}

void StandInReducer::wait(const Stream& compute, std::size_t bucket) {
  compute.wait(marks_.end_of(bucket));
}

}  // namespace stepsim::cuda

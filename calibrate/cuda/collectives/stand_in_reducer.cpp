#include "calibrate/cuda/collectives/stand_in_reducer.h"

#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {
namespace {

/// More than every L2 cache holds, so that the traffic goes to memory.
constexpr std::size_t kMemory = std::size_t{256} << 20U;

}  // namespace

StandInReducer::StandInReducer(const StandInShape& shape, const Stream& compute)
    : StreamReducer(compute), shape_(shape), memory_(shape.traffic > 0 ? kMemory : 0) {
  set_zero(stream(), memory_.data(), memory_.bytes());
}

void StandInReducer::start_step(std::span<const StandIn> collectives) {
  collectives_.assign(collectives.begin(), collectives.end());
  StreamReducer::start_step();
}

void StandInReducer::run(std::size_t bucket, Array data, std::int64_t elements) {
  if (collectives_.empty()) {
    return;
  }
  const StandIn& collective = collectives_[bucket];
  const auto bytes = static_cast<double>(elements * element_size(data.dtype));
  const double rate = collective.transfer > 0 ? shape_.traffic * bytes / collective.transfer : 0;
  stand_in_collective(stream(),
                      shape_.channels,
                      collective.wait,
                      collective.transfer,
                      memory_.data(),
                      static_cast<std::int64_t>(memory_.bytes()),
                      rate);
}

}  // namespace stepsim::cuda

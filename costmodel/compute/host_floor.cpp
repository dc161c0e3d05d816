#include "costmodel/compute/host_floor.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "costmodel/compute/pass_cost.h"
#include "costmodel/model/transformer.h"

namespace stepsim {
namespace {

constexpr double kForwardShare = 1.0 / 3;  ///< Of what the host takes for both passes.

/// What the host takes for both passes.
double launches_of_passes(const HostFloor& floor, double factor) {
  const double step = HostFloor::kOfTensor * factor * static_cast<double>(floor.tensors);
  return std::max(0.0, step - floor.optimizer);
}

/// A batch of the fewest tokens that were timed, at the smallest length.
BatchShape smallest_of(const PassCost& pass) {
  BatchShape batch;
  batch.max_length = std::max<std::int64_t>(1, std::llround(pass.length.first));
  const auto length = static_cast<double>(batch.max_length);
  batch.samples = std::max<std::int64_t>(1, std::llround(pass.tokens.first / length));
  batch.useful_tokens = std::llround(pass.tokens.first);
  batch.sum_squares = pass.tokens.first * length;
  return batch;
}

}  // namespace

double HostFloor::forward(double factor, double timed) const {
  return speed * std::min(kForwardShare * launches_of_passes(*this, factor), timed);
}

double HostFloor::backward(double factor, double timed) const {
  return speed * std::min((1 - kForwardShare) * launches_of_passes(*this, factor), timed);
}

std::optional<HostFloor> host_floor(const RecordedModel& recorded, bool host_is_device) {
  if (host_is_device || recorded.launch_seconds > 0 || !(recorded.forward.tokens.first > 0)) {
    return std::nullopt;
  }
  HostFloor floor;
  floor.tensors = parameters(recorded.model).size();
  floor.optimizer = recorded.optimizer_seconds;
  floor.smallest = smallest_of(recorded.forward);
  return floor;
}

}  // namespace stepsim

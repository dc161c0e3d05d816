#include "calibrate/cuda/timing/stream_hold.h"

#include <algorithm>
#include <atomic>

#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {

void StreamHold::start(std::size_t holds) {
  holds_ = holds;
  flags_.reserve(holds * sizeof(HoldFlags));
  std::fill_n(flags_.as<HoldFlags>(), holds, HoldFlags{});
}

void StreamHold::hold(const Stream& stream, std::size_t index, double longest) {
  hold_stream(stream, flags_.as<HoldFlags>() + index, longest);
}

void StreamHold::release(std::size_t index) {
  std::atomic_ref<std::uint32_t>(flags_.as<HoldFlags>()[index].released).store(1);
}

bool StreamHold::expired() const {
  const auto* const flags = flags_.as<HoldFlags>();
  return std::any_of(
      flags, flags + holds_, [](const HoldFlags& hold) { return hold.expired != 0; });
}

}  // namespace stepsim::cuda

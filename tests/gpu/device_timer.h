#pragma once

#include <cstdint>
#include <functional>

#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/kernels/kernels.h"
#include "tests/gpu/test_kernels.h"

namespace stepsim::cuda {

/// Times work of one stream by events. The stream is held until all is queued, so that launches
/// cost the measured time nothing.
class DeviceTimer {
 public:
  DeviceTimer() : flag_(sizeof(std::uint32_t)), flushed_bytes_(2 * device_info().l2_bytes) {
    flush_.reserve(static_cast<std::size_t>(flushed_bytes_));
    fill_normal(stream_, {flush_.data(), Dtype::F32}, flushed_bytes_ / 4, 1.0F, 1);
  }

  [[nodiscard]] const Stream& stream() const { return stream_; }

  /// Device seconds of `work`, one of `launches` in a row; `cold` empties the L2 cache first (once,
  /// so that it means something with one launch only).
  double seconds(const std::function<void()>& work, int launches, bool cold) {
    volatile std::uint32_t* const flag = flag_.as<std::uint32_t>();
    *flag = 0;
    if (cold) {
      flush_cache(stream_, flush_.data(), flushed_bytes_);
    }
    hold_stream(stream_, flag, kLongestHold);
    from_.record(stream_);
    for (int i = 0; i < launches; ++i) {
      work();
    }
    to_.record(stream_);
    *flag = 1;
    to_.synchronize();
    return seconds_between(from_, to_) / launches;
  }

 private:
  static constexpr double kLongestHold = 5.0;

  Stream stream_;
  HostBuffer flag_;
  DeviceBuffer flush_;
  std::int64_t flushed_bytes_;
  Event from_, to_;
};

}  // namespace stepsim::cuda

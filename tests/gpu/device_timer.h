#pragma once

#include <cstdint>
#include <functional>

#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/timing/stream_hold.h"
#include "costmodel/base/input_error.h"
#include "tests/gpu/test_kernels.h"

namespace stepsim::cuda {

/// Times work of one stream by events. The stream is held until all is queued, so that launches
/// cost the measured time nothing. The work must have run before.
class DeviceTimer {
 public:
  DeviceTimer() : flushed_bytes_(2 * device_info().l2_bytes) {
    flush_.reserve(static_cast<std::size_t>(flushed_bytes_));
    fill_normal(stream_, {flush_.data(), Dtype::F32}, flushed_bytes_ / 4, 1.0F, 1);
  }

  [[nodiscard]] const Stream& stream() const { return stream_; }

  /// Device seconds of `work`, one of `launches` in a row; `cold` empties the L2 cache first (once,
  /// so that it means something with one launch only). Raises EnvironmentFault when the stream goes
  /// on before all is queued, three times in a row.
  double seconds(const std::function<void()>& work, int launches, bool cold) {
    constexpr int kTries = 3;
    for (int i = 0; i < kTries; ++i) {
      hold_.start();
      if (cold) {
        flush_cache(stream_, flush_.data(), flushed_bytes_);
      }
      hold_.hold(stream_);
      from_.record(stream_);
      for (int launch = 0; launch < launches; ++launch) {
        work();
      }
      to_.record(stream_);
      hold_.release();
      to_.synchronize();
      if (!hold_.expired()) {
        return seconds_between(from_, to_) / launches;
      }
    }
    throw EnvironmentFault("the stream could not be held until all was queued");
  }

 private:
  Stream stream_;
  StreamHold hold_;
  DeviceBuffer flush_;
  std::int64_t flushed_bytes_;
  Event from_, to_;
};

}  // namespace stepsim::cuda

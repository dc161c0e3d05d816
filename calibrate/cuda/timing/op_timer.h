#pragma once

#include <functional>
#include <optional>

#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/timing/stream_hold.h"

namespace stepsim::cuda {

/// Launches and events that a stream takes while it is held; CUDA's queue holds about 1024, and the
/// next launch then blocks the host, which cannot release the stream any more.
inline constexpr int kQueued = 960;

/// Times work by the device's clock. The stream is held until the host has put everything into it,
/// so that launches add nothing. What is timed must have run before (StreamHold).
class OpTimer {
 public:
  /// Puts the work into the stream, with 20 launches at most.
  using Put = std::function<void()>;

  /// `at_work` is called whenever the stream has been released and the device works.
  explicit OpTimer(
      const Stream& stream, std::function<void()> at_work = [] {})
      : stream_(stream), at_work_(std::move(at_work)) {}

  /// Seconds of one of `calls` calls back to back. Nothing when the hold ended before all was in.
  [[nodiscard]] std::optional<double> seconds(const Put& put, int calls);
  /// Chooses as many calls as last a tenth of a millisecond, 32 at most: an event takes about a
  /// microsecond itself.
  [[nodiscard]] std::optional<double> seconds(const Put& put);

 private:
  const Stream& stream_;
  std::function<void()> at_work_;
  StreamHold hold_;
  Event begin_;
  Event end_;
};

}  // namespace stepsim::cuda

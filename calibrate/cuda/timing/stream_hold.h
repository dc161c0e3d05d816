#pragma once

#include <cstddef>

#include "calibrate/cuda/device/device.h"

namespace stepsim::cuda {

/// Holds a stream until the host has put in all that is to be timed, so that launches cost the
/// measured time nothing, and tells whether a hold ended before that.
///
/// What is timed must have run before: a kernel that is loaded, or a buffer that grows, waits for
/// the stream, which waits for the host.
class StreamHold {
 public:
  /// The longest hold in seconds: a hundred times what the host takes to fill the queue.
  static constexpr double kLongest = 0.2;

  explicit StreamHold(std::size_t holds = 1) { start(holds); }

  /// Forgets what was; the device must be done with it. `holds`: how many there will be.
  void start(std::size_t holds = 1);
  /// Holds the stream from here on. Several streams may share a hold.
  void hold(const Stream& stream, std::size_t index = 0, double longest = kLongest);
  /// Lets the held streams go on.
  void release(std::size_t index = 0);
  /// Whether a hold since start() has ended by itself; the device must be done with all.
  [[nodiscard]] bool expired() const;

 private:
  std::size_t holds_ = 0;
  HostBuffer flags_;  ///< [hold]
};

}  // namespace stepsim::cuda

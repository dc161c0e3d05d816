#pragma once

#include <chrono>
#include <cstdint>

namespace stepsim::cuda::emulated {

/// What naps have added to the device's clock.
inline std::uint64_t napped = 0;

/// A test sets it to have streams held: nobody can release them, so every hold expires.
inline bool holds_expire = false;

/// The device's clock: the host's, and the time of naps, which the host need not wait for.
inline std::uint64_t device_clock() {
  const auto host = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(host / std::chrono::nanoseconds(1)) + napped;
}

/// A kernel that naps waits for something that nobody does meanwhile on a device whose streams run
/// at once; its naps last a thousand times as long as asked, so that its limit comes soon.
inline void nap(unsigned nanoseconds) {
  napped += 1000ULL * nanoseconds;
}

}  // namespace stepsim::cuda::emulated

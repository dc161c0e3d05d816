#pragma once

#include <memory>
#include <optional>
#include <string>

namespace stepsim::cuda {

/// What the driver says of a device's state; never changes it.
struct DeviceState {
  int sm_clock_mhz = 0;
  int memory_clock_mhz = 0;
  int max_sm_clock_mhz = 0;
  int temperature_celsius = 0;
  double power_watts = 0;
};

/// Asks NVML, which is loaded when it is there (libnvidia-ml.so.1, part of the driver).
class DeviceMonitor {
 public:
  /// `bus_id`: PCI, as DeviceInfo has it.
  explicit DeviceMonitor(const std::string& bus_id);
  ~DeviceMonitor();
  DeviceMonitor(const DeviceMonitor&) = delete;
  DeviceMonitor& operator=(const DeviceMonitor&) = delete;

  /// Nothing where NVML is absent or refuses.
  [[nodiscard]] std::optional<DeviceState> state() const;
  /// Whether the clock is held below what the load asks for by heat or by the board, not by the
  /// power limit that every training run meets: times of now are not those of a run. To be asked
  /// while the device works: an idle one gives other reasons.
  [[nodiscard]] bool throttled() const;
  /// "580.65.06", or "" where NVML is absent.
  [[nodiscard]] std::string driver_version() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  void* device_ = nullptr;
};

}  // namespace stepsim::cuda

#include "calibrate/cuda/device/device_monitor.h"

#include <array>
#include <utility>

#include <dlfcn.h>

namespace stepsim::cuda {
namespace {

// NVML's stable interface, as its documentation states it: status 0 is success.
constexpr int kSuccess = 0;
constexpr int kSmClock = 1;
constexpr int kMemoryClock = 2;
constexpr int kGpuTemperature = 0;
// Reasons for a held clock: hardware slowdown, software thermal, hardware thermal, power brake.
constexpr unsigned long long kThrottleReasons = 0x08ULL | 0x20ULL | 0x40ULL | 0x80ULL;

}  // namespace

struct DeviceMonitor::Library {
  void* handle = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*max_clock)(void*, int, unsigned*) = nullptr;
  int (*temperature)(void*, int, unsigned*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;
  int (*throttle_reasons)(void*, unsigned long long*) = nullptr;

  template <typename Function>
  void load(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(dlsym(handle, name));
  }

  [[nodiscard]] int read(int (*function)(void*, int, unsigned*), void* device, int kind) const {
    unsigned value = 0;
    return function != nullptr && function(device, kind, &value) == kSuccess
               ? static_cast<int>(value)
               : 0;
  }
};

DeviceMonitor::DeviceMonitor(const std::string& bus_id) {
  void* handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return;
  }
  auto library = std::make_unique<Library>();
  library->handle = handle;
  int (*init)() = nullptr;
  int (*by_bus_id)(const char*, void**) = nullptr;
  library->load(init, "nvmlInit_v2");
  library->load(by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
  library->load(library->shutdown, "nvmlShutdown");
  library->load(library->driver_version, "nvmlSystemGetDriverVersion");
  library->load(library->clock, "nvmlDeviceGetClockInfo");
  library->load(library->max_clock, "nvmlDeviceGetMaxClockInfo");
  library->load(library->temperature, "nvmlDeviceGetTemperature");
  library->load(library->power, "nvmlDeviceGetPowerUsage");
  // The name has changed.
  library->load(library->throttle_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  if (library->throttle_reasons == nullptr) {
    library->load(library->throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  }
  if (init == nullptr || by_bus_id == nullptr || init() != kSuccess) {
    dlclose(handle);
    return;
  }
  library_ = std::move(library);
  if (by_bus_id(bus_id.c_str(), &device_) != kSuccess) {
    device_ = nullptr;
  }
}

DeviceMonitor::~DeviceMonitor() {
  if (library_ != nullptr) {
    if (library_->shutdown != nullptr) {
      library_->shutdown();
    }
    dlclose(library_->handle);
  }
}

std::optional<DeviceState> DeviceMonitor::state() const {
  if (device_ == nullptr) {
    return std::nullopt;
  }
  DeviceState state;
  state.sm_clock_mhz = library_->read(library_->clock, device_, kSmClock);
  state.memory_clock_mhz = library_->read(library_->clock, device_, kMemoryClock);
  state.max_sm_clock_mhz = library_->read(library_->max_clock, device_, kSmClock);
  state.temperature_celsius = library_->read(library_->temperature, device_, kGpuTemperature);
  unsigned milliwatts = 0;
  if (library_->power != nullptr && library_->power(device_, &milliwatts) == kSuccess) {
    state.power_watts = milliwatts * 1e-3;
  }
  return state;
}

bool DeviceMonitor::throttled() const {
  unsigned long long reasons = 0;
  return device_ != nullptr && library_->throttle_reasons != nullptr &&
         library_->throttle_reasons(device_, &reasons) == kSuccess &&
         (reasons & kThrottleReasons) != 0;
}

std::string DeviceMonitor::driver_version() const {
  std::array<char, 96> text{};
  if (library_ == nullptr || library_->driver_version == nullptr ||
      library_->driver_version(text.data(), text.size()) != kSuccess) {
    return {};
  }
  return text.data();
}

}  // namespace stepsim::cuda

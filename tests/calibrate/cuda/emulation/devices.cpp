// In place of calibrate/cuda/device/devices.cpp: two devices.
#include "calibrate/cuda/device/devices.h"

namespace stepsim {

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

CudaInventory cuda_inventory() {
  constexpr std::int64_t kMemory = std::int64_t{1} << 30;
  CudaInventory inventory;
  inventory.devices.assign(2, {"emulated device", kMemory, 4, 0, 0});
  return inventory;
}

}  // namespace stepsim

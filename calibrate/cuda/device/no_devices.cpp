// In place of devices.cpp when the CUDA toolkit was not there.
#include "calibrate/cuda/device/devices.h"

namespace stepsim {

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

CudaInventory cuda_inventory() {
  CudaInventory inventory;
  inventory.problem = "this stepcal was built without the CUDA toolkit";
  return inventory;
}

}  // namespace stepsim

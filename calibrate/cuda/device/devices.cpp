#include "calibrate/cuda/device/devices.h"

#include <cuda_runtime_api.h>

#include "calibrate/cuda/device/module_loading.h"

namespace stepsim {

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

CudaInventory cuda_inventory() {
  cuda::load_kernels_at_start();
  CudaInventory inventory;
  cudaRuntimeGetVersion(&inventory.runtime_version);
  cudaDriverGetVersion(&inventory.driver_version);
  if (inventory.driver_version == 0) {
    inventory.problem = "no CUDA driver";
    return inventory;
  }
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    inventory.problem = cudaGetErrorString(status);
    return inventory;
  }
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
      continue;
    }
    inventory.devices.push_back({properties.name,
                                 static_cast<std::int64_t>(properties.totalGlobalMem),
                                 properties.multiProcessorCount,
                                 properties.major,
                                 properties.minor});
  }
  if (inventory.devices.empty()) {
    inventory.problem = "no CUDA device";
  }
  return inventory;
}

}  // namespace stepsim

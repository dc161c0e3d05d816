#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stepsim {

/// One CUDA device as the runtime describes it.
struct CudaDevice {
  std::string name;
  std::int64_t memory_bytes = 0;
  int multiprocessors = 0;
  int compute_major = 0;
  int compute_minor = 0;
};

/// What CUDA there is on this machine.
struct CudaInventory {
  int runtime_version = 0;  ///< 12040 is 12.4.
  int driver_version = 0;   ///< Newest CUDA the driver supports; 0 = no driver.
  std::vector<CudaDevice> devices;
  std::string problem;  ///< Why there are no devices: "no CUDA driver", …; empty when there are.
};

/// Asks the runtime; works without a driver. Never raises.
[[nodiscard]] CudaInventory cuda_inventory();

/// 12040 as "12.4".
[[nodiscard]] std::string cuda_version_text(int version);

}  // namespace stepsim

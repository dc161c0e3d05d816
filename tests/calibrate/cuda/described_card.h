#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calibrate/cuda/attention/cudnn_plan.h"

namespace stepsim::cuda {

using Engines = std::vector<std::int64_t>;

/// A card by what cuDNN asks of it, which is enough for its heuristics and its compiler.
struct Card {
  const char* name;
  int version;  ///< 100 * compute capability major + 10 * minor.
  int multiprocessors;
  int shared_memory;  ///< Bytes a block may have.
  /// The engines that cuDNN 9.19 proposed for the plain graphs of attention, best first.
  Engines forward, backward;
};

inline const Card kA100 = {"A100", 800, 108, 166912, {1}, {7}};
inline const Card kH200 = {"H200", 900, 132, 232448, {2, 1}, {6, 7}};
inline const Card kB200 = {"B200", 1000, 148, 232448, {3, 1}, {5, 7}};

inline CudnnDescriptor device_of(const Card& card) {
  return describe_device(
      R"({"deviceName": ")" + std::string(card.name) + R"(", "deviceVer": )" +
      std::to_string(card.version) + R"(, "multiProcessorCount": )" +
      std::to_string(card.multiprocessors) + R"(, "maxSharedMemoryPerBlockOptin": )" +
      std::to_string(card.shared_memory) +
      R"(, "driverVer": 13000, "cudaDeviceId": 0, "warpSize": 32, "maxThreadsPerBlock": 1024,
          "maxThreadsPerSM": 2048, "maxCtasPerSM": 32, "regsPerBlock": 65536,
          "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
          "reservedSharedMemoryPerBlock": 1024, "maxGridSize": [2147483647, 65535, 65535],
          "maxBlockSize": [1024, 1024, 64], "l2CacheSize": 41943040,
          "totalGlobalMem": 84987740160, "smClockRateKHz": 1410000,
          "memClockRateKHz": 1593000, "supportCoopLaunch": 1, "isTccDriver": 0,
          "pciDeviceId": 0})");
}

}  // namespace stepsim::cuda

#pragma once

#include <string>

#include "calibrate/measure/measure.h"

namespace stepsim {

/// What `--device` names: "cpu", "cuda" (each rank on the device of its number on the host) or
/// "cuda:2" (counted from that device on).
struct MeasuredDevice {
  DeviceKind kind = DeviceKind::Cpu;
  int first = 0;  ///< Of CUDA the first device's number.
};

/// Raises InputError for another name.
[[nodiscard]] MeasuredDevice parse_device(const std::string& text);

/// The backend of a device. Nothing is started yet, since CUDA must not be used before a fork.
/// Raises EnvironmentFault when the program was built without that backend.
[[nodiscard]] BackendFactory backend_factory(const MeasuredDevice& device);

// What backend_factory() chooses from; each raises EnvironmentFault in a program built without it.
[[nodiscard]] BackendFactory cpu_backend_factory();
[[nodiscard]] BackendFactory cuda_backend_factory(int first_device);

}  // namespace stepsim

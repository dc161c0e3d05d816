#pragma once

#include <string>

#include "calibrate/measure/measure.h"

namespace stepsim {

/// The backend of `--device`: "cpu", "cuda" (each rank on the device of its number on the host) or
/// "cuda:2" (counted from that device on). Nothing is started yet, since CUDA must not be used
/// before a fork. Raises InputError for another name, and EnvironmentFault when the program was
/// built without that backend.
[[nodiscard]] BackendFactory backend_factory(const std::string& device);

/// The kind of a device's name: "cpu" or "cuda". Raises InputError for another name.
[[nodiscard]] std::string device_kind(const std::string& device);

// What backend_factory() chooses from; each raises EnvironmentFault in a program built without it.
[[nodiscard]] BackendFactory cpu_backend_factory();
[[nodiscard]] BackendFactory cuda_backend_factory(int first_device);

}  // namespace stepsim

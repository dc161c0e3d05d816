#include "calibrate/cli/backend.h"

#include <array>
#include <utility>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"

namespace stepsim {
namespace {

constexpr const char* kCuda = "cuda";

/// The kind, and of CUDA the first device's number.
std::pair<std::string, int> parse_device(const std::string& device) {
  const std::size_t colon = device.find(':');
  const std::string kind = device.substr(0, colon);
  if (kind != "cpu" && kind != kCuda) {
    const std::array<std::string, 2> known = {"cpu", kCuda};
    throw InputError("--device: " + unknown_name("device", device, known));
  }
  if (colon == std::string::npos) {
    return {kind, 0};
  }
  const auto number = parse_number<int>(std::string_view{device}.substr(colon + 1));
  if (kind != kCuda || number.value_or(-1) < 0) {
    throw InputError("--device: '{}' is no device; say cpu, cuda or cuda:NUMBER",
                     printable(device));
  }
  return {kind, *number};
}

}  // namespace

std::string device_kind(const std::string& device) {
  return parse_device(device).first;
}

BackendFactory backend_factory(const std::string& device) {
  const auto [kind, first] = parse_device(device);
  return kind == kCuda ? cuda_backend_factory(first) : cpu_backend_factory();
}

}  // namespace stepsim

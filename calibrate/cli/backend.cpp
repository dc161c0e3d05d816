#include "calibrate/cli/backend.h"

#include <array>
#include <charconv>
#include <utility>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

constexpr const char* kCuda = "cuda";

/// The kind, and of CUDA the first device's number.
std::pair<std::string, int> parse_device(const std::string& device) {
  const std::size_t colon = device.find(':');
  const std::string kind = device.substr(0, colon);
  int number = 0;
  if (kind != "cpu" && kind != kCuda) {
    const std::array<std::string, 2> known = {"cpu", kCuda};
    throw InputError("--device: " + unknown_name("device", device, known));
  }
  if (colon != std::string::npos) {
    const char* end = device.data() + device.size();
    const auto [rest, error] = std::from_chars(device.data() + colon + 1, end, number);
    if (kind != kCuda || error != std::errc() || rest != end || number < 0) {
      throw InputError("--device: '{}' is no device; say cpu, cuda or cuda:NUMBER",
                       printable(device));
    }
  }
  return {kind, number};
}

}  // namespace

std::string device_kind(const std::string& device) {
  return parse_device(device).first;
}

BackendFactory backend_factory(const std::string& device, const StandInShape& stand_in) {
  const auto [kind, first] = parse_device(device);
  return kind == kCuda ? cuda_backend_factory(first, stand_in) : cpu_backend_factory();
}

}  // namespace stepsim

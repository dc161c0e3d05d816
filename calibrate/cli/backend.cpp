#include "calibrate/cli/backend.h"

#include <string_view>
#include <vector>

#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/base/row_named.h"

namespace stepsim {

MeasuredDevice parse_device(const std::string& text) {
  static const std::vector<std::string> kNames = {name_of(DeviceKind::Cpu),
                                                  name_of(DeviceKind::Cuda)};
  const std::size_t colon = text.find(':');
  MeasuredDevice device;
  try {
    device.kind = enum_named<DeviceKind>(kNames, "device", text.substr(0, colon));
  } catch (const InputError& error) {
    throw InputError("--device: {}", error.what());
  }
  if (colon == std::string::npos) {
    return device;
  }
  const auto number = parse_number<int>(std::string_view{text}.substr(colon + 1));
  if (device.kind != DeviceKind::Cuda || number.value_or(-1) < 0) {
    throw InputError("--device: '{}' is no device; say cpu, cuda or cuda:NUMBER", printable(text));
  }
  device.first = *number;
  return device;
}

BackendFactory backend_factory(const MeasuredDevice& device) {
  return device.kind == DeviceKind::Cuda ? cuda_backend_factory(device.first)
                                         : cpu_backend_factory();
}

}  // namespace stepsim
